"""Closes the replies of an OpenAPI document: a field that it does not describe is a fault in this run.

The documents themselves leave replies open, so that fields can be added. usage: close.py <open.json >closed.json
"""

import json
import sys


def walk(part):
    """All objects of a part of the document."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from walk(one)


def named(part):
    """The schemas to which a part refers."""
    return {one["$ref"].rsplit("/", 1)[-1] for one in walk(part) if "$ref" in one}


document = json.load(sys.stdin)
schemas = document["components"]["schemas"]
of_replies, left = set(), named([of["responses"] for item in document["paths"].values() for of in item.values()])
while left:
    of_replies |= left
    left = named([schemas[name] for name in left]) - of_replies
# Problems have further members, and parts of an object do not know the other parts.
parts = named([one["allOf"] for one in walk(schemas) if "allOf" in one])
for name in of_replies - parts - {"Problem"}:
    if "properties" in schemas[name]:
        schemas[name].setdefault("additionalProperties", False)
json.dump(document, sys.stdout)
