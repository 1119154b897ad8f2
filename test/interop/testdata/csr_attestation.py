#!/usr/bin/env python3
"""Reads and writes AttestationBundles with pyasn1, from the ASN.1 that was published.

Each line of standard input is a request in JSON, each line of standard output its answer:

    {"read": "<hex>"}         a bundle: its statements and certificates, written again
    {"write": {...}}          the hexadecimal DER of a bundle

The types follow module CSR-ATTESTATION-2025 of draft-ietf-lamps-csr-attestation-28, and for
statements of the TPM draft-birkholz-rats-tcg-tpm2-attestation. Nothing here is of nodeattest.
"""
import json
import sys

from pyasn1.codec.der import decoder, encoder
from pyasn1.type import constraint, namedtype, tag, univ

CERTIFY, QUOTE = "2.23.133.20.1", "2.23.133.20.2"


class OtherCertificateFormat(univ.Sequence):  # RFC 5652, 10.2.2
    componentType = namedtype.NamedTypes(
        namedtype.NamedType("otherCertFormat", univ.ObjectIdentifier()),
        namedtype.NamedType("otherCert", univ.Any()))


class LimitedCertChoices(univ.Choice):
    componentType = namedtype.NamedTypes(
        namedtype.NamedType("certificate", univ.Sequence()),
        namedtype.NamedType("other", OtherCertificateFormat().subtype(
            implicitTag=tag.Tag(tag.tagClassContext, tag.tagFormatConstructed, 3))))


class AttestationStatement(univ.Sequence):
    componentType = namedtype.NamedTypes(
        namedtype.NamedType("type", univ.ObjectIdentifier()),
        namedtype.NamedType("stmt", univ.Any()))


class AttestationBundle(univ.Sequence):
    # certs are read one by one: pyasn1 wants the inside of a certificate otherwise.
    componentType = namedtype.NamedTypes(
        namedtype.NamedType("attestations", univ.SequenceOf(
            componentType=AttestationStatement()).subtype(
                sizeSpec=constraint.ValueSizeConstraint(1, sys.maxsize))),
        namedtype.OptionalNamedType("certs", univ.SequenceOf(componentType=univ.Any()).subtype(
            sizeSpec=constraint.ValueSizeConstraint(1, sys.maxsize))))


class TcgAttestCertify(univ.Sequence):
    componentType = namedtype.NamedTypes(
        namedtype.NamedType("tpmSAttest", univ.OctetString()),
        namedtype.NamedType("signature", univ.OctetString()),
        namedtype.OptionalNamedType("tpmTPublic", univ.OctetString()))


class TcgAttestQuote(univ.Sequence):
    componentType = namedtype.NamedTypes(
        namedtype.NamedType("tpmSAttest", univ.OctetString()),
        namedtype.NamedType("signature", univ.OctetString()),
        namedtype.OptionalNamedType("pcrValues", univ.OctetString()))


STATEMENTS = {CERTIFY: TcgAttestCertify, QUOTE: TcgAttestQuote}


def decoded(data, spec):
    value, rest = decoder.decode(data, asn1Spec=spec)
    if rest:
        raise ValueError("%d bytes after the value" % len(rest))
    return value


def read(data):
    """The statements and certificates of a bundle, and the bundle written again."""
    bundle = decoded(data, AttestationBundle())
    statements = []
    for one in bundle["attestations"]:
        kind, content = str(one["type"]), bytes(one["stmt"])
        out = {"type": kind, "stmt": content.hex()}
        if kind in STATEMENTS:
            statement = decoded(content, STATEMENTS[kind]())
            if encoder.encode(statement) != content:
                raise ValueError("a statement in another encoding")
            out["fields"] = {name: bytes(statement[name]).hex() for name in statement if statement[name].isValue}
        statements.append(out)
    certs = [bytes(c).hex() for c in bundle["certs"]] if bundle["certs"].isValue else []
    return {"statements": statements, "certs": certs, "again": encoder.encode(bundle).hex()}


def write(asked):
    """A bundle of statements, whose fields are given, and of certificates."""
    bundle = AttestationBundle()
    for n, one in enumerate(asked["statements"]):
        kind = one["type"]
        if "fields" in one:
            statement = STATEMENTS[kind]()
            for name, value in one["fields"].items():
                statement[name] = bytes.fromhex(value)
            content = encoder.encode(statement)
        else:
            content = bytes.fromhex(one["stmt"])
        if one.get("wrapped"):
            content = encoder.encode(univ.OctetString(content))
        bundle["attestations"][n] = AttestationStatement()
        bundle["attestations"][n]["type"], bundle["attestations"][n]["stmt"] = kind, content
    for n, cert in enumerate(asked["certs"]):
        if not asked.get("other"):
            bundle["certs"][n] = bytes.fromhex(cert)
            continue
        choice = LimitedCertChoices()
        choice["other"]["otherCertFormat"] = asked["other"]
        choice["other"]["otherCert"] = bytes.fromhex(cert)
        bundle["certs"][n] = encoder.encode(choice)
    return encoder.encode(bundle).hex()


def main():
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = read(bytes.fromhex(asked["read"])) if "read" in asked else {"der": write(asked["write"])}
        except Exception as e:  # pylint: disable=broad-except
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
