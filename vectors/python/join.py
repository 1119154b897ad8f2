"""The messages of the join and what is derived from them, by docs/protocol.md alone.

A message is read into a dict by the names of its fields, and written from one. What is
wrong is Refused, by the name of the check.
"""

import base64
import hashlib
import hmac

from structures import Public, Refused, der, integer, key_spki, need, spki_key, tlv

MESSAGE, SIZE, VERSION = "message-encoding", "message-size", "message-version"
AK, EK, DOCUMENT = 0, 1, 2  # the roads

# Object identifiers, with tag and length.
ARC = bytes.fromhex("0615" + "69839ddd94e6ffecda83e19394a1ccebb6cb9444")
CERTIFY, HELLO, PROOF, QUOTE, EVENT_LOG = bytes.fromhex("06056781051401"), *(ARC + bytes([n]) for n in (1, 2, 3, 4))
PROVIDER_ID = bytes.fromhex("060a2b06010401d679020115")


# DER by tables of fields.


class Field:
    """One element with this tag and a size from least to most."""

    def __init__(self, tag, least, most, optional=False):
        self.tag, self.least, self.most, self.optional = tag, least, most, optional

    def value(self, content):
        need(self.least <= len(content) <= self.most, MESSAGE)
        return content

    def content(self, value):
        return value

    def read(self, data):
        if self.optional and data[:1] != bytes([self.tag]):
            return None, data
        content, rest = tlv(data, self.tag, MESSAGE)
        return self.value(content), rest

    def write(self, value):
        return b"" if value is None else der(self.tag, self.content(value))


class Octets(Field):
    def __init__(self, least, most, tag=0x04, optional=False):
        super().__init__(tag, least, most, optional)


class Text(Field):
    def __init__(self, least, most):
        super().__init__(0x0C, least, most)

    def value(self, content):
        try:
            return super().value(content).decode("utf-8")
        except UnicodeDecodeError:
            raise Refused(MESSAGE) from None

    def content(self, value):
        return value.encode()


class Number(Field):
    """An INTEGER or ENUMERATED of 0 to most; a version is refused by another name."""

    def __init__(self, most, tag=0x02, version=False):
        super().__init__(tag, 0, most)
        self.version = version

    def value(self, content):
        n = integer(der(0x02, content), MESSAGE)[0]
        need(n == 1 or not self.version, VERSION)
        need(n <= self.most, MESSAGE)
        return n

    def content(self, value):
        return value.to_bytes(value.bit_length() // 8 + 1, "big")


class Whole(Field):
    """A SEQUENCE, kept as it is."""

    def __init__(self):
        super().__init__(0x30, 0, 1 << 18)

    def read(self, data):
        rest = tlv(data, 0x30, MESSAGE)[1]
        return data[:len(data) - len(rest)], rest

    def write(self, value):
        return value


PUBLIC = Octets(1, 4096)
BINDING = {
    "version": Number(1, version=True), "road": Number(2, 0x0A), "keyID": Octets(8, 8), "nonce": Octets(16, 16),
    "issuedAt": Number(253402300799), "notAfter": Number(253402300799), "clusterID": Text(1, 128), "signerName": Text(1, 571),
    "requester": Text(0, 1024), "expirationSeconds": Number(2**31 - 1), "machineKey": Octets(32, 32), "akName": Octets(0, 66),
    "requestHash": Octets(32, 32),
}
KEYS = {"ekPublic": Octets(1, 4096, 0x80, optional=True), "akPublic": PUBLIC}
TABLES = {
    "binding": BINDING,
    "hello": {"version": Number(1, version=True), "road": Number(1, 0x0A), "clusterID": Text(1, 128), "targetSigner": Text(1, 571), **KEYS},
    "proof": {"binding": Whole(), **KEYS},
    "certify": {"tpmSAttest": PUBLIC, "signature": PUBLIC, "tpmTPublic": Octets(1, 4096, optional=True)},
    "quote": {"tpmSAttest": PUBLIC, "signature": PUBLIC, "pcrs": Whole()},
    "pcr": {"bank": Number(65535), "index": Number(31), "value": Octets(1, 64)},
    "challenge": {"binding": Whole(), "clear": Octets(32, 32, 0x80, optional=True), "credential": Field(0xA1, 0, 1 << 14, optional=True)},
    "credential": {"idObject": Octets(1, 256), "encryptedSecret": Octets(1, 1024)},
}


def read(name, data, limit=1 << 18, tag=0x30):
    need(len(data) <= limit, SIZE)
    content, rest = tlv(data, tag, MESSAGE)
    need(not rest, MESSAGE)
    out = {}
    for field, form in TABLES[name].items():
        out[field], content = form.read(content)
    need(not content, MESSAGE)
    return out


def write(name, values):
    return der(0x30, b"".join(form.write(values.get(field, 1 if field == "version" else None)) for field, form in TABLES[name].items()))


def read_binding(data):
    b = read("binding", data, 1 << 14)
    need(len(b["akName"]) > 2 if b["road"] == EK else not b["akName"], MESSAGE)
    return b


def read_hello(data):
    m = read("hello", data)
    need(m["ekPublic"] is None or m["road"] == EK, MESSAGE)
    return m


def read_proof(data):
    m = read("proof", data)
    m["echo"] = read_binding(m["binding"])
    need(m["echo"]["road"] != DOCUMENT, MESSAGE)
    need(m["ekPublic"] is None or m["echo"]["road"] == EK, MESSAGE)
    return m


def read_challenge(data):
    m = read("challenge", data, 1 << 14)
    m["echo"] = read_binding(m["binding"])
    if m["credential"] is not None:
        m["credential"] = read("credential", der(0x30, m["credential"]))
    on_ek = m["echo"]["road"] == EK
    need((m["credential"] is not None) == on_ek and (m["clear"] is None) == on_ek, MESSAGE)
    return m


def elements(data, fault=MESSAGE):
    """The elements inside a SEQUENCE or another constructed element, with tag and length."""
    content, rest = tlv(data, data[0] if data else 0x30, fault)
    need(not rest, fault)
    out = []
    while content:
        _, rest = tlv(content, content[0], fault)
        out.append(content[:len(content) - len(rest)])
        content = rest
    return out


def read_bundle(data):
    """The statements of an AttestationBundle, each a type and an element, and its certificates."""
    need(len(data) <= 1 << 18, SIZE)
    tlv(data, 0x30, MESSAGE)
    parts = elements(data)
    need(1 <= len(parts) <= 2 and all(p[0] == 0x30 and 1 <= len(elements(p)) <= 8 for p in parts), MESSAGE)
    statements = []
    for s in elements(parts[0]):
        need(s[0] == 0x30, MESSAGE)
        inside = elements(s)
        need(len(inside) == 2 and inside[0][0] == 0x06, MESSAGE)
        statements.append(tuple(inside))
    certificates = elements(parts[1]) if len(parts) == 2 else []
    need(all(c[0] == 0x30 for c in certificates), MESSAGE)
    need(all(len(c) <= 1 << 14 for c in certificates), SIZE)
    return statements, certificates


def write_bundle(statements, certificates):
    listed = der(0x30, b"".join(der(0x30, kind + statement) for kind, statement in statements))
    return der(0x30, listed + (der(0x30, b"".join(certificates)) if certificates else b""))


# Carriage.

LABELS = ["CERTIFICATE REQUEST"] + ["KUBELET AUTHENTICATOR ATTESTATION " + name for name in ("PROVIDER", "DATA")]


def write_pem(*contents):
    out = []
    for label, content in zip(LABELS, contents):
        text = base64.b64encode(content).decode()
        out += [f"-----BEGIN {label}-----", *(text[n:n + 64] for n in range(0, len(text), 64)), f"-----END {label}-----", ""]
    return "\n".join(line for line in out if line).encode() + b"\n"


def read_pem(text):
    """The contents of the blocks: one, or all three."""
    contents, lines = [], text.decode("ascii", "replace").split("\n")
    for label in LABELS:
        begin, end = f"-----BEGIN {label}-----", f"-----END {label}-----"
        if begin not in lines or end not in lines:
            break
        try:
            contents.append(base64.b64decode("".join(lines[lines.index(begin) + 1:lines.index(end)]), validate=True))
        except ValueError:
            raise Refused("bundle-base64") from None
    need(contents and write_pem(*contents) == text, "bundle-block")
    return contents


# Derivations.


def sha256(data):
    return hashlib.sha256(data).digest()


def labelled(key, form, label, binding):
    return hmac.new(key, f"nodeattest/{form} {label}".encode() + b"\0" + binding, "sha256").digest()


def name_of(public):
    """The Name of a TPMT_PUBLIC as received."""
    return Public(public).names()[0]


def machine_key(key):
    return sha256(key_spki(key))


ORDER = {"road": "road", "clusterID": "cluster", "signerName": "signer", "expirationSeconds": "expiration", "machineKey": "machine-key",
         "akName": "ak-name", "requestHash": "request", "requester": "requester"}


def compare(echo, expected):
    """The first field that differs of those that are expected."""
    for field, name in ORDER.items():
        need(field not in expected or echo[field] == expected[field], "binding-" + name)


def check_window(binding):
    need(0 <= binding["notAfter"] - binding["issuedAt"] <= 3600, "binding-window")


class Request:
    """What the join looks at of a PKCS#10 request."""

    def __init__(self, data):
        fault = "request-der"
        parts = elements(data, fault)
        need(len(parts) == 3, fault)
        self.info, self.algorithm, self.signature = parts[0], elements(parts[1], fault)[0][2:], tlv(parts[2], 0x03, fault)[0][1:]
        self.hash = sha256(self.info)
        _, subject, self.spki, *attributes = elements(self.info, fault)
        self.key = spki_key(self.spki)
        names = [elements(elements(rdn, fault)[0], fault) for rdn in elements(subject, fault)]
        self.common_name = next((tlv(value, value[0], fault)[0].decode() for kind, value in names if kind == bytes.fromhex("0603550403")), "")
        self.provider_id = None
        for attribute in elements(attributes[0], fault):
            for extension in elements(elements(elements(attribute, fault)[1], fault)[0], fault):
                kind, *_, value = elements(extension, fault)
                if kind == PROVIDER_ID:
                    self.provider_id = tlv(tlv(value, 0x04, fault)[0], 0x0C, fault)[0].decode()
