#!/usr/bin/env python3
"""Replays the test vectors of the join, and the worked example of docs/protocol.md.

    replay_join.py [FOLDER [PAGE]]

It was written from docs/protocol.md and shares no code with the SDK: it needs Python's
standard library alone. Without arguments FOLDER is ../data from this file and PAGE
../../docs/protocol.md; with FOLDER alone there is no example. Replayed are the classes "statement", "binding" and "accepted", at the levels
"statement", "quote", "challenge", "node", "verify" and "credential"; each vector must be
refused by the check that it expects, or accepted with the result that it names. What trust on
first use refuses is a matter of each control plane, and is left out. The exit status is 1
where a vector is not as it expects, and where there is nothing to replay.
"""

import base64
import json
import pathlib
import sys

sys.dont_write_bytecode = True  # no folder next to the vectors

from credential import open_credential, private_key
from example import Example
from join import AK, Request, check_window, compare, labelled, machine_key, read_binding, read_challenge
from statements import Quote, Statement
from structures import Broken, Public, Refused, need, octets
from verifier import Retry, Verifier

CLASSES = ("statement", "binding", "accepted")


def verify(v, environment):
    return Verifier(environment).verify(v["object"])


def challenge(v, environment):
    binding, _ = Verifier(environment).challenge(v["object"])
    want = (v.get("result") or {}).get("binding")
    if want is not None:  # all but the nonce, which a verifier draws
        compared = read_binding(octets(want)) | binding
        if compared != read_binding(octets(want)):
            raise Broken(f"another binding: {compared}")
    return {"binding": want}


def node(v, environment):
    """What a node checks before it answers."""
    n = v["node"]
    request = Request(octets(n["request"]))
    need(private_key(octets(n["key"]))[0] == request.key, "key-mismatch")
    echo = read_challenge(octets(n["challenge"]))["echo"]
    check_window(echo)
    compare(echo, {"road": AK, "clusterID": n["clusterID"], "signerName": n["signerName"], "expirationSeconds": n.get("expirationSeconds", 0),
                   "machineKey": machine_key(Public(octets(n["akPublic"])).key()), "akName": b"", "requestHash": request.hash})
    return {}


def credential(v, environment):
    c = v["credential"]
    m = read_challenge(octets(c["challenge"]))
    secret = open_credential(*private_key(octets(c["ek"])), octets(c["akName"]), m["credential"])
    keys = [octets(k["secret"]) for k in environment["ringKeys"] if bytes.fromhex(k["id"]) == m["echo"]["keyID"]]
    if [secret] != [labelled(k, "tpm/v1", "secret", m["binding"]) for k in keys]:
        raise Broken("a secret that does not follow from its binding")
    return {"secret": base64.b64encode(secret).decode()}


LEVELS = {"statement": lambda v, _: Statement(v["statement"]).verify(), "quote": lambda v, _: Quote(v["quote"]).verify(),
          "verify": verify, "challenge": challenge, "node": node, "credential": credential}


def disagreement(v, environment):
    """What is wrong with a vector; None where all is as it expects."""
    expect, retry = v["expect"], v.get("retry", False)
    if (expect == "") != (v["class"] == "accepted"):
        return "it contradicts its class"
    try:
        found = LEVELS[v["level"]](v, {**environment, **v.get("environment", {})})
    except Refused as e:
        same = expect == str(e) and retry == isinstance(e, Retry)
        return None if same else f"refused by {e}, want {expect or 'acceptance'}"
    if expect:
        return f"accepted, want {expect}"
    for name, value in (v.get("result") or {}).items():
        if name not in found or found[name] not in (value, None):
            return f"found {found}, want {name} {value}"
    return None


def replayed(v):
    return v["level"] in LEVELS and not (v["expect"] and "firstUse" in v.get("environment", {}))


def replay(root, problems):
    counts = dict.fromkeys(CLASSES, 0)
    try:
        environment = json.loads((root / "environment.json").read_text())
    except (ValueError, OSError) as e:
        sys.exit(f"environment.json: {e}")
    for name in CLASSES:
        for file in sorted((root / name).glob("*")):
            problem = None
            try:
                v = json.loads(file.read_text())
                if v["name"] + ".json" != file.name or v["class"] != name:
                    raise Broken("it calls itself " + v["class"] + "/" + v["name"])
                if replayed(v):
                    counts[name] += 1
                    problem = disagreement(v, environment)
            except (Broken, LookupError, TypeError, ValueError, AttributeError, OSError) as e:
                problem = f"{type(e).__name__}: {e}"
            if problem:
                problems.append(f"{name}/{file.name}: {problem}")
        if not counts[name]:
            problems.append(f"{root / name}: no vector to replay")
    return counts


def main():
    if len(sys.argv) > 3:
        sys.exit("usage: replay_join.py [FOLDER [PAGE]]")
    vectors = pathlib.Path(__file__).resolve().parent.parent
    folder, *pages = map(pathlib.Path, sys.argv[1:] or [vectors / "data", vectors.parent / "docs" / "protocol.md"])
    problems, values = [], 0
    counts = replay(folder, problems)
    for page in pages:
        try:
            values = Example(page.read_text()).count()
        except (Broken, Refused, LookupError, ValueError, OSError) as e:
            problems.append(f"{page}: {type(e).__name__}: {e}")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{counts['statement']} statements, {counts['binding']} bindings and {counts['accepted']} accepted replayed, {len(problems)} disagreements; "
          f"{values} values of the worked example")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
