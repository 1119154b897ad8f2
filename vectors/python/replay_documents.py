#!/usr/bin/env python3
"""Replays the test vectors of documents without any code of the SDK.

    replay_documents.py [FOLDER]

FOLDER is the one of this file. It needs Python's standard library alone: RSA signatures
(PKCS #1 v1.5 with SHA-256, RFC 8017, section 8.2) are verified in signatures.py, JSON, JWS and
BER are read here. Every vector must be accepted under the name that it has, or refused; the
check that refuses is compared too. The exit status is 1 where a vector is not as it expects,
and where there is nothing to replay.
"""

import base64
import calendar
import datetime
import hashlib
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # no folder next to the vectors

from signatures import RSA, verify_rsassa


class Refused(Exception):
    """A check that refuses, by its name."""


def check(ok, name):
    if not ok:
        raise Refused(name)


# JSON, with one reading: no member twice or in two cases, nothing behind, UTF-8, 32 levels.


def no_twins(pairs):
    names = [name for name, _ in pairs]
    if len({name.lower() for name in names}) != len(names):
        raise ValueError("a member twice")
    return dict(pairs)


def no_constant(name):
    raise ValueError(name)


def read_json(data):
    text = data.decode("utf-8")
    depth = deepest = 0
    for c in re.sub(r'"(\\.|[^"\\])*"', "", text):
        depth += (c in "[{") - (c in "]}")
        deepest = max(deepest, depth)
    if deepest > 32:
        raise ValueError("too deep")
    value = json.loads(text, object_pairs_hook=no_twins, parse_constant=no_constant)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def is_text(v):
    return isinstance(v, str)


def is_number(v):
    return isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 53


# Identity tokens of Google Compute Engine.

ASYMMETRIC = {p + s for p in ("RS", "PS", "ES") for s in ("256", "384", "512")} | {"EdDSA"}


def segment(text):
    check(re.fullmatch(r"[A-Za-z0-9_-]*", text) and len(text) % 4 != 1, "base64url")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    check(base64.urlsafe_b64encode(data).decode().rstrip("=") == text, "base64url")
    return data


def parse_token(document):
    check(0 < len(document) <= 8192, "gce-token-size")
    parts = document.decode("latin-1").split(".")
    check(len(parts) == 3, "form")
    try:
        header = read_json(segment(parts[0]))
    except ValueError:
        raise Refused("header")
    check("jwk" not in header and "x5c" not in header, "header")
    check(header.get("alg") in ASYMMETRIC, "algorithm")
    payload, signature = segment(parts[1]), segment(parts[2])
    check(header["alg"] == "RS256", "algorithm")
    check(header.get("kid"), "key-id")
    check(header.get("typ") == "JWT", "header")
    return header, payload, signature, (parts[0] + "." + parts[1]).encode()


NUMBERS = {"iat", "exp", "nbf", "instance_creation_timestamp", "project_number"}
TEXTS = {"aud", "iss", "sub", "azp", "instance_id", "instance_name", "project_id", "zone"}


def types(claims):
    for name, value in claims.items():
        if name in NUMBERS:
            check(is_number(value), "gce-claims")
        if name in TEXTS or name == "email":
            check(is_text(value), "gce-claims")


def parse_claims(payload):
    try:
        claims = read_json(payload)
    except ValueError:
        raise Refused("gce-claims")
    types({k: v for k, v in claims.items() if k in ("iat", "exp", "nbf", "aud", "iss", "sub", "azp", "email")})
    engine = None
    if "google" in claims:
        check(isinstance(claims["google"], dict), "gce-claims")
        if "compute_engine" in claims["google"]:
            engine = claims["google"]["compute_engine"]
            check(isinstance(engine, dict), "gce-claims")
            types(engine)
            licences = engine.get("license_id", [])
            check(isinstance(licences, list) and all(map(is_text, licences)), "gce-claims")
    check({"aud", "iss", "sub", "azp", "iat", "exp"} <= claims.keys(), "gce-claims")
    check(claims["sub"] == claims["azp"], "gce-claims")
    check(engine is not None, "gce-machine")
    wanted = {"instance_id", "instance_name", "project_id", "project_number", "zone", "instance_creation_timestamp"}
    check(wanted <= engine.keys(), "gce-machine")
    check(re.fullmatch(r"[1-9][0-9]*", engine["instance_id"]) and int(engine["instance_id"]) < 1 << 64, "gce-machine")
    check(engine["project_number"] > 0, "gce-machine")
    check(re.fullmatch(r"[A-Za-z0-9.:-]+", engine["project_id"]), "gce-machine")
    for name in ("instance_name", "zone"):
        check(re.fullmatch(r"[A-Za-z0-9-]+", engine[name]), "gce-machine")
    return claims, engine


def number(text):
    return int.from_bytes(segment(text), "big")


def verify_gce(document, now, env):
    header, payload, signature, signed = parse_token(document)
    claims, engine = parse_claims(payload)
    check(claims["aud"] == env["audience"], "gce-audience")
    check(claims["iss"] == "https://accounts.google.com", "gce-issuer")
    check(0 < claims["exp"] - claims["iat"] <= 3600, "gce-lifetime")
    check(now < claims["exp"], "gce-expired")
    check(max(claims["iat"], claims.get("nbf", 0)) <= now + 60, "gce-future")
    check(engine["project_id"] in env["projects"], "gce-project")
    keys = [k for k in env["keys"]["keys"] if k["kid"] == header["kid"]]
    check(keys, "key-id")
    keys = [k for k in keys if k["kty"] == "RSA" and k["alg"] == "RS256"]
    check(keys, "algorithm")
    n, e = number(keys[0]["n"]), number(keys[0]["e"])
    check(len(signature) == (n.bit_length() + 7) // 8, "jws-signature-size")
    check(verify_rsassa((RSA, n, e), "sha256", signed, signature), "jws-signature")
    return "gce:" + engine["project_id"] + "/" + engine["instance_id"]


# Instance identity documents of Amazon EC2.

OID = {name: bytes.fromhex("0609" + hexadecimal) for name, hexadecimal in {
    "data": "2a864886f70d010701", "signedData": "2a864886f70d010702", "contentType": "2a864886f70d010903",
    "messageDigest": "2a864886f70d010904", "signingTime": "2a864886f70d010905", "protection": "2a864886f70d010934",
}.items()}
SHA256 = bytes.fromhex("300d06096086480165030402010500")
SHA256_RSA = bytes.fromhex("300d06092a864886f70d01010b0500")


class DER:
    """A reader of DER, which refuses with one name."""

    def __init__(self, data):
        self.data = data

    def element(self, tag):
        """One element of this tag: its content, and itself."""
        d = self.data
        check(len(d) >= 2 and d[0] == tag, "awsid-encoding")
        length, start = d[1], 2
        if length >= 0x80:
            count = length & 0x7F
            check(1 <= count <= 4 and len(d) >= 2 + count, "awsid-encoding")
            length, start = int.from_bytes(d[2:2 + count], "big"), 2 + count
            check(length >= 0x80 and length >> (8 * (count - 1)), "awsid-encoding")
        check(len(d) >= start + length, "awsid-encoding")
        self.data = d[start + length:]
        return d[start:start + length], d[:start + length]

    def exactly(self, want, name="awsid-encoding"):
        check(self.data.startswith(want), name)
        self.data = self.data[len(want):]

    def end(self):
        check(not self.data, "awsid-encoding")


def parse_attributes(attributes, content):
    outer = DER(attributes)
    inner = DER(outer.element(0x31)[0])
    values, last = {}, b""
    while inner.data:
        body, whole = inner.element(0x30)
        attribute = DER(body)
        name, value = attribute.element(0x06)[1], attribute.element(0x31)[0]
        attribute.end()
        check(name not in values and whole > last and len(values) < 16, "awsid-attributes")
        values[name], last = value, whole
    check(values.get(OID["contentType"]) == OID["data"], "awsid-attributes")
    if OID["protection"] in values:
        check(values[OID["protection"]] == b"\x30\x1e" + SHA256 + b"\xa1" + SHA256_RSA[1:], "awsid-attributes")
    at = values.get(OID["signingTime"], b"")
    check(re.fullmatch(rb"\x17\x0d[0-9]{12}Z", at), "awsid-attributes")
    try:
        signed_at = datetime.datetime.strptime(at[2:].decode(), "%y%m%d%H%M%SZ")
    except ValueError:
        raise Refused("awsid-attributes")
    check(values.get(OID["messageDigest"]) == b"\x04\x20" + hashlib.sha256(content).digest(), "awsid-digest")
    return calendar.timegm(signed_at.timetuple())


def parse_signed(document):
    check(0 < len(document) <= 8192, "awsid-size")
    check(len(document) != 128, "awsid-algorithm")
    d = DER(document)
    d.exactly(b"\x30\x80" + OID["signedData"] + b"\xa0\x80\x30\x80\x02\x01\x01")
    check(d.element(0x31)[0] == SHA256, "awsid-algorithm")
    d.exactly(b"\x30\x80" + OID["data"] + b"\xa0\x80\x24\x80")
    content = b""
    while not d.data.startswith(b"\x00\x00"):
        part = d.element(0x04)[0]
        check(part, "awsid-encoding")
        content += part
    check(content, "awsid-encoding")
    d.exactly(b"\x00" * 6)
    signers = DER(d.element(0x31)[0])
    signer = DER(signers.element(0x30)[0])
    signers.end()
    check(d.data == b"\x00" * 6, "awsid-encoding")
    signer.exactly(b"\x02\x01\x01")
    who = DER(signer.element(0x30)[0])
    issuer, serial = who.element(0x30)[1], who.element(0x02)[0]
    who.end()
    check(serial and not (len(serial) > 1 and serial[0] == 0 and serial[1] < 0x80), "awsid-encoding")
    signer.exactly(SHA256, "awsid-algorithm")
    check(signer.data[:1] == b"\xa0", "awsid-attributes")
    attributes = b"\x31" + signer.element(0xA0)[1][1:]
    signer.exactly(SHA256_RSA, "awsid-algorithm")
    signature = signer.element(0x04)[0]
    signer.end()
    return content, issuer, int.from_bytes(serial, "big", signed=True), attributes, signature, parse_attributes(attributes, content)


def parse_certificate(der):
    """Serial number, issuer, notBefore, notAfter, modulus and exponent."""
    body = DER(DER(DER(der).element(0x30)[0]).element(0x30)[0])
    if body.data[:1] == b"\xa0":
        body.element(0xA0)
    serial = int.from_bytes(body.element(0x02)[0], "big", signed=True)
    body.element(0x30)
    issuer = body.element(0x30)[1]
    validity, times = DER(body.element(0x30)[0]), []
    while validity.data:
        tag = validity.data[0]
        text = validity.element(tag)[0].decode()
        times.append(calendar.timegm(datetime.datetime.strptime(text, "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ").timetuple()))
    body.element(0x30)
    key = DER(body.element(0x30)[0])
    key.element(0x30)
    numbers = DER(DER(key.element(0x03)[0][1:]).element(0x30)[0])
    n, e = (int.from_bytes(numbers.element(0x02)[0], "big") for _ in range(2))
    return serial, issuer, times[0], times[1], n, e


def parse_identity_document(document):
    """What it says, and what a signature is verified with."""
    content, *signed = parse_signed(document)
    check(len(content) <= 4096, "awsid-claims")
    try:
        d = read_json(content)
    except ValueError:
        raise Refused("awsid-claims")
    for name in ("billingProducts", "marketplaceProductCodes"):
        check(len(d.get(name) or []) <= 64, "awsid-claims")
    for name in ("accountId", "region", "instanceId", "pendingTime"):
        check(is_text(d.get(name)), "awsid-claims")
    check(re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-\d\dT\d\d:\d\d:\d\dZ", d["pendingTime"]), "awsid-claims")
    check(re.fullmatch(r"[0-9]{12}", d["accountId"]), "awsid-claims")
    check(re.fullmatch(r"i-([0-9a-f]{8}|[0-9a-f]{17})", d["instanceId"]), "awsid-claims")
    check(re.fullmatch(r"[a-z]{2,8}(-[a-z0-9]{1,16}){2,4}", d["region"]), "awsid-claims")
    return d, signed


def verify_identity_document(d, signed, now, env):
    issuer, serial, attributes, signature, signed_at = signed
    check(d["region"] in env["certificates"], "awsid-region")
    own, name, begins, ends, n, e = parse_certificate(base64.b64decode(env["certificates"][d["region"]]))
    check(serial == own and issuer == name, "awsid-signer")
    check(begins <= now <= ends, "awsid-certificate-expired")
    check(signed_at <= now + 60, "awsid-future")
    check(verify_rsassa((RSA, n, e), "sha256", attributes, signature), "awsid-signature")


def verify_awsid(document, now, env):
    d, signed = parse_identity_document(document)
    verify_identity_document(d, signed, now, env)
    return d["instanceId"]


KINDS = {"gce": verify_gce, "awsid": verify_awsid}


def seconds(text):
    return calendar.timegm(datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").timetuple())


def main(kinds):
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "cloud")
    count = wrong = 0
    for kind, verify in kinds.items():
        environment = json.loads((folder / kind / "environment.json").read_text())
        for path in sorted((folder / kind).glob("*.json")):
            if path.name == "environment.json":
                continue
            vector = json.loads(path.read_text())
            got, machine = "", ""
            try:
                machine = verify(base64.b64decode(vector["document"]), seconds(vector.get("time", environment["time"])), environment)
            except Refused as refusal:
                got = str(refusal)
            count += 1
            if got != vector["expect"] or machine != vector.get("machine", ""):
                wrong += 1
                print(f"{kind}/{path.name}: got {got or machine}, want {vector['expect'] or vector.get('machine')}")
    print(f"{count} vectors, {wrong} of them not as they expect")
    sys.exit(1 if wrong or not count else 0)


if __name__ == "__main__":
    main(KINDS)
