"""The ways in which texts name a secret: a key, and a value that only its key reveals."""

from __future__ import annotations

from typing import NamedTuple


class KeyShape(NamedTuple):
    """A text in which a key names the secret."""

    name: str
    text: str
    """`SECRET` stands for the secret."""
    secret: str = "{A10-16}"
    """The recipe of the secret."""


WORD = "{l8-12}"
"""A password that looks like any word."""

KEY_SHAPES = (
    KeyShape("JSON", '{"user": "ann", "password": "SECRET", "n": 1}', WORD),
    KeyShape("JSON number", '{"user": "ann", "password": SECRET}', "{n9}"),
    KeyShape("JSON list", '{"api_keys": ["SECRET", "other"]}'),
    KeyShape("JSON in JSON", '{"body": "{\\"apiKey\\": \\"SECRET\\", \\"n\\": 1}"}'),
    KeyShape("JSON cut off", '{"half": 1, "client_secret": "SECRET'),
    KeyShape("JSON card", '{"cardNumber": "SECRET", "expiry": "12/29"}', "{card}"),
    KeyShape("JSON name and value", '{"name": "Authorization", "value": "Bearer SECRET"}'),
    KeyShape("OTLP attribute", '[{"key":"db.password","value":{"stringValue":"SECRET"}}]', WORD),
    KeyShape("list of options", '["run", "--password", "SECRET", "--verbose"]', WORD),
    KeyShape("list of pairs", '[["Host", "x"], ["X-Api-Key", "SECRET"]]'),
    KeyShape("state change", '[{"op":"set","path":["db","password"],"value":"SECRET"}]', WORD),
    KeyShape(
        "default in a tool",
        '{"properties": {"api_key": {"type": "string", "default": "SECRET"}}}',
    ),
    KeyShape(
        "docker auth",
        '{"auths": {"https://registry.example.com/v1/": {"auth": "SECRET"}}}',
        "{basic}",
    ),
    KeyShape("repr", "{'n': None, 'secret': 'SECRET'}", WORD),
    KeyShape("keyword argument", 'connect(host="db", password="SECRET", port=5432)', WORD),
    KeyShape("call", 'headers.set("Authorization", "Basic SECRET");', "{basic}"),
    KeyShape("assignment", "const apiKey = 'SECRET';"),
    KeyShape("environment of Python", 'os.environ["AUTH_TOKEN"] = "SECRET"'),
    KeyShape("environment of Node", "process.env.SESSION_TOKEN = 'SECRET'"),
    KeyShape("PowerShell", '$password = "SECRET"', WORD),
    KeyShape("PGPASSWORD", "PGPASSWORD=SECRET psql -h db -U ann", WORD),
    KeyShape("MYSQL_PWD", "MYSQL_PWD=SECRET mysqldump shop > shop.sql", WORD),
    KeyShape("environment file", "DB_HOST=db\nDB_PASS=SECRET\nDB_PORT=5432", WORD),
    KeyShape("export", "export GITHUB_TOKEN=SECRET && gh auth status"),
    KeyShape("Dockerfile", "ENV API_KEY=SECRET"),
    KeyShape("option", "run --password SECRET --user ann", WORD),
    KeyShape("option with =", "run --db-password=SECRET --user ann", WORD),
    KeyShape("curl -u", "curl -s -u ann:SECRET https://host/api", WORD),
    KeyShape("curl -H", "curl -H 'X-Auth-Token: SECRET' https://host/api"),
    KeyShape("mysql -p", "mysql -h db -u root -pSECRET shop"),
    KeyShape("sshpass", "sshpass -p SECRET ssh ann@host", WORD),
    KeyShape("redis-cli", "redis-cli -h cache -a SECRET ping", WORD),
    KeyShape("AccountKey", "AccountName=shop;AccountKey=SECRET==;EndpointSuffix=x", "{b86}"),
    KeyShape("connection string", "Server=db;User Id=sa;Password=SECRET;Encrypt=true", WORD),
    KeyShape(
        "signature of Azure",
        "https://x.blob.core.windows.net/c?sv=2026&sig=SECRET%3D&se=1",
        "{A43}",
    ),
    KeyShape(
        "signature of AWS",
        "https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=SECRET",
        "{h64}",
    ),
    KeyShape("query", "GET /cb?state=1&access_token=SECRET&user=ann HTTP/1.1"),
    KeyShape("query in a query", "https://host/login?next=%2Fcb%3Faccess_token%3DSECRET%26n%3D1"),
    KeyShape("URL", "postgres://ann:SECRET@db:5432/shop", WORD),
    KeyShape("form", "grant_type=password&username=ann&password=SECRET", WORD),
    KeyShape("header", "Authorization: Basic SECRET", "{basic}"),
    KeyShape("cookie", "Set-Cookie: sid=SECRET; Path=/; HttpOnly"),
    KeyShape("YAML", "database:\n  user: ann\n  password: SECRET", WORD),
    KeyShape("YAML name and value", "env:\n- name: DB_PASSWORD\n  value: SECRET", WORD),
    KeyShape("TOML", '[db]\nuser = "ann"\npassword = "SECRET"', WORD),
    KeyShape("INI", "[client]\nuser = ann\npassword = SECRET", WORD),
    KeyShape("properties", "spring.datasource.password=SECRET", WORD),
    KeyShape(".npmrc", "//npm.example.com/:_authToken=SECRET"),
    KeyShape(".netrc", "machine host login ann password SECRET", WORD),
    KeyShape("XML", "<user>ann</user><password>SECRET</password>", WORD),
    KeyShape("SQL", "ALTER USER ann WITH PASSWORD 'SECRET' VALID UNTIL 'infinity'", WORD),
)
"""51 shapes."""
