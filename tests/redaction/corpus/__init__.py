"""The corpus of redaction: secrets by vendor and by key, the texts around them, harmless texts.

No file contains a complete secret. `made` creates a secret from a recipe, with new random
characters in each run.

- `vendors`: the forms of keys and tokens that vendors document
- `shapes`: the ways in which texts name a secret by a key
- `surroundings`: the texts around a secret
- `harmless`: real texts without secrets
- `measure`: figures by kind; `python -m tests.redaction.corpus.measure` prints them
"""
