"""The forms of keys and tokens, as their vendors document them or issue them."""

from __future__ import annotations

from typing import NamedTuple


class VendorForm(NamedTuple):
    """The form of one vendor's secret."""

    name: str
    recipe: str
    source: str
    """The vendor's page about these secrets."""


_OPENAI = "https://platform.openai.com/docs/api-reference/authentication"
_ANTHROPIC = "https://docs.claude.com/en/api/overview"
_GITHUB = (
    "https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/"
    "about-authentication-to-github"
)
_GITLAB = "https://docs.gitlab.com/security/tokens/"
_AWS = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"
_GOOGLE = "https://cloud.google.com/docs/authentication/api-keys"
_GOOGLE_OAUTH = "https://developers.google.com/identity/protocols/oauth2"
_SLACK = "https://docs.slack.dev/authentication/tokens"
_STRIPE = "https://docs.stripe.com/keys"
_LANGFUSE = "https://langfuse.com/docs/api-and-data-platform/features/public-api"
_LANGSMITH = "https://docs.langchain.com/langsmith/create-account-api-key"
_GRAFANA = "https://grafana.com/docs/grafana/latest/administration/service-accounts/"

VENDOR_FORMS = (
    VendorForm("OpenAI, project", "sk-proj-{w74}T3BlbkFJ{w74}", _OPENAI),
    VendorForm("OpenAI, user", "sk-{A20}T3BlbkFJ{A20}", _OPENAI),
    VendorForm("OpenAI, service account", "sk-svcacct-{w74}T3BlbkFJ{w74}", _OPENAI),
    VendorForm("OpenAI, admin", "sk-admin-{w58}T3BlbkFJ{w58}", _OPENAI),
    VendorForm("Anthropic, key", "sk-ant-api03-{w93}AA", _ANTHROPIC),
    VendorForm("Anthropic, OAuth", "sk-ant-oat01-{w93}AA", _ANTHROPIC),
    VendorForm("Groq", "gsk_{A52}", "https://console.groq.com/docs/quickstart"),
    VendorForm("xAI", "xai-{A80}", "https://docs.x.ai/docs/tutorial"),
    VendorForm("Perplexity", "pplx-{A48}", "https://docs.perplexity.ai/getting-started/quickstart"),
    VendorForm("Tavily", "tvly-{A32}", "https://docs.tavily.com/documentation/quickstart"),
    VendorForm("Tavily, dev", "tvly-dev-{A32}", "https://docs.tavily.com/documentation/quickstart"),
    VendorForm("LangSmith, personal", "lsv2_pt_{h32}_{h10}", _LANGSMITH),
    VendorForm("LangSmith, service", "lsv2_sk_{h32}_{h10}", _LANGSMITH),
    VendorForm(
        "Pinecone",
        "pcsk_{A5-6}_{A63}",
        "https://docs.pinecone.io/guides/projects/manage-api-keys",
    ),
    VendorForm("Hugging Face", "hf_{A34}", "https://huggingface.co/docs/hub/security-tokens"),
    VendorForm("Replicate", "r8_{A37}", "https://replicate.com/docs/topics/security/api-tokens"),
    VendorForm(
        "OpenRouter", "sk-or-v1-{h64}", "https://openrouter.ai/docs/api-reference/authentication"
    ),
    VendorForm("DeepSeek", "sk-{h32}", "https://api-docs.deepseek.com/"),
    VendorForm("Cerebras", "csk-{a48}", "https://inference-docs.cerebras.ai/quickstart"),
    VendorForm("NVIDIA", "nvapi-{w64}", "https://docs.api.nvidia.com/nim/docs/api-quickstart"),
    VendorForm("ElevenLabs", "sk_{h48}", "https://elevenlabs.io/docs/api-reference/authentication"),
    VendorForm("Langfuse", "sk-lf-{uuid}", _LANGFUSE),
    VendorForm("Firecrawl", "fc-{h32}", "https://docs.firecrawl.dev/introduction"),
    VendorForm("Jina", "jina_{h32}{w28}", "https://jina.ai/reader/"),
    VendorForm("Voyage", "pa-{w43}", "https://docs.voyageai.com/docs/api-key-and-installation"),
    VendorForm("E2B", "e2b_{h40}", "https://e2b.dev/docs/api-key"),
    VendorForm("Notion", "ntn_{d11}{A35}", "https://developers.notion.com/docs/authorization"),
    VendorForm("Linear", "lin_api_{A40}", "https://linear.app/developers/graphql"),
    VendorForm("GitHub, classic", "ghp_{A36}", _GITHUB),
    VendorForm("GitHub, fine-grained", "github_pat_{A22}_{A59}", _GITHUB),
    VendorForm("GitHub, app", "ghs_{A36}", _GITHUB),
    VendorForm("GitLab, personal", "glpat-{w20}", _GITLAB),
    VendorForm("GitLab, runner", "glrt-{w20}", _GITLAB),
    VendorForm("npm", "npm_{A36}", "npm Docs: About access tokens"),
    VendorForm("PyPI", "pypi-AgEIcHlwaS5vcmc{w70-160}", "PyPI help: How can I use API tokens?"),
    VendorForm("RubyGems", "rubygems_{h48}", "https://guides.rubygems.org/api-key-scopes/"),
    VendorForm("Docker Hub", "dckr_pat_{w27}", "https://docs.docker.com/security/access-tokens/"),
    VendorForm("AWS, access key", "AKIA{B16}", _AWS),
    VendorForm("AWS, temporary", "ASIA{B16}", _AWS),
    VendorForm("Google, API key", "AIza{w35}", _GOOGLE),
    VendorForm("Google, OAuth access", "ya29.{w100-180}", _GOOGLE_OAUTH),
    VendorForm("Google, OAuth refresh", "1//0{A1}{w96}", _GOOGLE_OAUTH),
    VendorForm("Google, OAuth client", "GOCSPX-{w28}", _GOOGLE_OAUTH),
    VendorForm(
        "Azure, client secret",
        "{A3}8Q~{w34}",
        "https://learn.microsoft.com/en-us/entra/identity-platform/quickstart-register-app",
    ),
    VendorForm("Slack, bot", "xoxb-{n12}-{n13}-{A24}", _SLACK),
    VendorForm("Slack, app", "xapp-1-A{U10}-{n13}-{h64}", _SLACK),
    VendorForm(
        "Slack, webhook",
        "https://hooks.slack.com/services/T{U10}/B{U10}/{A24}",
        "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks",
    ),
    VendorForm("Stripe, secret", "sk_live_{A24-99}", _STRIPE),
    VendorForm("Stripe, restricted", "rk_test_{A24-99}", _STRIPE),
    VendorForm("Stripe, webhook", "whsec_{A32}", "https://docs.stripe.com/webhooks"),
    VendorForm(
        "SendGrid",
        "SG.{w22}.{w43}",
        "https://www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys",
    ),
    VendorForm("Twilio", "SK{h32}", "https://www.twilio.com/docs/iam/api-keys"),
    VendorForm(
        "Mailchimp", "{h32}-us{n2}", "https://mailchimp.com/developer/marketing/guides/quick-start/"
    ),
    VendorForm("Databricks", "dapi{h32}", "https://docs.databricks.com/aws/en/dev-tools/auth/pat"),
    VendorForm(
        "Vault", "hvs.{w90-120}", "https://developer.hashicorp.com/vault/docs/concepts/tokens"
    ),
    VendorForm(
        "HCP Terraform",
        "{A14}.atlasv1.{w67}",
        "https://developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens",
    ),
    VendorForm(
        "DigitalOcean",
        "dop_v1_{h64}",
        "https://docs.digitalocean.com/reference/api/create-personal-access-token/",
    ),
    VendorForm(
        "Telegram", "{n10}:AA{w33}", "https://core.telegram.org/bots/api#authorizing-your-bot"
    ),
    VendorForm("Grafana", "glsa_{A32}_{h8}", _GRAFANA),
    VendorForm("Supabase", "sbp_{h40}", "https://supabase.com/docs/guides/api/api-keys"),
    VendorForm(
        "Atlassian",
        "ATATT3xFfGF0{w171}={H8}",
        "https://support.atlassian.com/atlassian-account/docs/manage-api-tokens-for-your-atlassian-account/",
    ),
    VendorForm(
        "Airtable",
        "pat{A14}.{h64}",
        "https://airtable.com/developers/web/guides/personal-access-tokens",
    ),
    VendorForm("JSON Web Token", "eyJhbGciOiJIUzI1NiJ9.{json}.{w43}", "RFC 7519"),
    VendorForm(
        "private key",
        "-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----",
        "RFC 7468",
    ),
)
"""64 forms. Only the vendor's name and the recipe matter to the tests."""
