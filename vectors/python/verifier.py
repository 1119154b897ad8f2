"""The control plane's side of the join on the roads of a TPM, by docs/protocol.md alone.

A Verifier is made from an environment of the vectors. Of the node policy it has the rules
that the join itself needs, and of an issuer's profile the extended key usage; it decides
about membership by the list of members.
"""

import base64
import calendar
import datetime
import hashlib

from certificates import Certificate, Fault, dotted, signed_by, verifies
from credential import parameters
from join import (
    AK, CERTIFY, EK, EVENT_LOG, HELLO, LABELS, PROOF, QUOTE, Request, check_window, compare, elements, labelled, machine_key, name_of, read,
    read_bundle, read_hello, read_pem, read_proof)
from signatures import ECC, RSA
from statements import Quote, Statement, primary_name
from structures import HASHES, Public, Refused, key_spki, need, octets, spki_key, tlv

CHALLENGE_SIGNER = "cluster.x-k8s.io/kubelet-attestation-challenge-"
HIERARCHIES = [bytes.fromhex(handle) for handle in ("40000001", "4000000b", "4000000c")]


class Retry(Refused):
    """A refusal that is not final."""


def later(condition, name):
    if not condition:
        raise Retry(name)


def seconds(text):
    """The Unix time of a time in RFC 3339, a fraction of a second dropped."""
    return calendar.timegm(datetime.datetime.fromisoformat(text).utctimetuple())


def encoded(values):
    return {name: base64.b64encode(v).decode() if isinstance(v, bytes) else v for name, v in values.items() if v is not None}


class Filed:
    """A request object: what was filed, by whom and when."""

    def __init__(self, o):
        spec = o["spec"]
        self.signer, self.requester = spec["signerName"], spec["username"]
        self.expiration = spec.get("expirationSeconds") or 0
        self.created = seconds(o["metadata"]["creationTimestamp"])
        self.blocks = read_pem(octets(spec["request"]))
        self.request = Request(self.blocks[0])

    def evidence(self):
        """The statements and certificates, of the one format that is read."""
        form = self.blocks[1] if len(self.blocks) == len(LABELS) else b""
        need(form.partition(b"/v")[0] == b"tpm", "attestation-provider")
        need(form == b"tpm/v1", "provider-version")
        return self.blocks[2]


class Keys:
    """The keys that a message presents: the AK, and its certificate or the EK."""

    def __init__(self, road, m, certificates):
        self.road, self.ak, self.certificates = road, Public(m["akPublic"]), certificates
        if road == AK:
            need(certificates, "certificate-missing")
            self.chain = self.parse()
            self.ak_key = self.chain[0].key
            try:
                self.ak.key()
            except Refused:
                raise Refused("ak-mismatch") from None
            need(self.ak.material() == self.ak_key, "ak-mismatch")
            self.machine_key, self.ak_name = machine_key(self.ak_key), b""
            return
        need(bool(certificates) != bool(m["ekPublic"]), "ek-sources")
        if certificates:
            self.chain = self.parse()
            self.ek = self.chain[0].key
        else:
            self.chain, self.ek = [], self.ek_without(m["ekPublic"])
        try:
            parameters(self.ek)
        except (KeyError, TypeError):
            raise Refused("ek-type") from None
        self.ak_key, self.ak_name, self.machine_key = self.ak.key(), name_of(m["akPublic"]), machine_key(self.ek)

    def parse(self):
        try:
            return [Certificate(c) for c in self.certificates]
        except (Fault, ValueError):
            raise Refused("certificate-encoding") from None

    @staticmethod
    def ek_without(spki):
        try:
            key = spki_key(spki)
        except Refused:
            raise Refused("ek-key-encoding") from None
        need(key_spki(key) == spki, "ek-key-encoding")
        return key

    def check_ak(self):
        """Step 7 of a hello: what a statement's verification says of its AK."""
        need(HASHES[self.ak.name_alg] != "sha1", "name-algorithm")
        self.ak.strength()
        self.ak.check_signs_statements()


class Verifier:
    def __init__(self, environment):
        self.e = environment
        self.now = seconds(environment["now"])
        self.good = environment.get("goodPCRs")

    # The request and its policy.

    def policy(self, filed, target):
        """The rules of the node policy that the join needs; returns the node's name."""
        need(target in self.e["policy"]["signerNames"], "signer-name")
        key = filed.request.key
        need(key[0] == RSA and 2048 <= key[1].bit_length() <= 4096 and key[2] == 65537 or key[0] == ECC and key[1] in (3, 4), "key-strength")
        prefix = "nodeattest:recovery:" if "recovery" in target else "system:node:"
        name = filed.request.common_name.removeprefix(prefix)
        machines = [m for m in self.e["machines"] if m["asked"] == name]
        need(machines, "machine-unknown")
        return name

    def open_road(self, road, cluster):
        closed = not self.e["issuers"] if road == AK else not (self.e.get("ekIssuers") or self.e.get("allowedEKs"))
        need(not closed, "binding-road")
        need(cluster in self.e["clusterIDs"], "binding-cluster")

    def check_request(self, filed):
        need(verifies(filed.request.key, filed.request.algorithm, filed.request.info, filed.request.signature), "request-signature")

    # Trust.

    def trust(self, keys):
        """The profile of the issuer and the machine's identity, None where the profile names machines by other fields."""
        if keys.road == EK:
            return self.trust_ek(keys)
        leaf, found = keys.chain[0], None
        for number, issuer in enumerate(self.e["issuers"]):
            if self.chains(keys.chain, issuer["roots"]):
                found = found or "certificate-ext-key-usage"
                profile = issuer["profile"]
                if self.usable(leaf, profile):
                    return profile, self.identity(leaf, profile, number)
        raise Refused(found or "certificate-chain")

    def trust_ek(self, keys):
        machine, issuers = "ek:sha256:" + keys.machine_key.hex(), self.e.get("ekIssuers", [])
        if keys.chain and any(self.chains(keys.chain, i["roots"]) for i in issuers):
            return {}, machine
        need(machine in self.e.get("allowedEKs", []), "certificate-chain" if keys.chain and issuers else "ek-untrusted")
        return {}, machine

    def chains(self, path, roots):
        """Whether the certificates, in their order, end below one of the roots, now."""
        tops = [Certificate(octets(root)) for root in roots]
        if not all(c.begins <= self.now <= c.ends for c in path) or not all(a.issuer == b.subject and b.ca and signed_by(a, b) for a, b in zip(path, path[1:])):
            return False
        return any(path[-1].issuer == top.subject and signed_by(path[-1], top) for top in tops)

    @staticmethod
    def usable(leaf, profile):
        usages = profile.get("extKeyUsage", [])
        return any(dotted(u) in usages for u in leaf.ext_usage) or not leaf.ext_usage and profile.get("noExtKeyUsage", False)

    @staticmethod
    def identity(leaf, profile, number):
        for kind in profile["identity"]:
            if kind == "othername" and leaf.other_names:
                form, value = leaf.other_names[0]
                issuer = f"issuer-{number}/" if number else ""
                return f"othername:{issuer}{dotted(form)}:" + base64.urlsafe_b64encode(value).decode().rstrip("=")
            if kind == "gce" and leaf.instance:
                return f"gce:{leaf.instance['project']}/{leaf.instance['id']}"
            if kind == "ak":
                return "ak:sha256:" + machine_key(leaf.key).hex()
        return None

    def membership(self, node, machine):
        """The member, where the list decides and the machine's identity is one that is read here."""
        if machine is None or "firstUse" in self.e:
            return None
        members = [m for m in self.e["members"] if m["nodeName"] == node and m["machine"] == machine]
        need(members, "not-a-member")
        return members[0]

    # The ring.

    def ring(self):
        read_at = self.e.get("ringReadAt")
        later(read_at is None or self.now - seconds(read_at) <= 60, "ring-stale")
        return [{"id": bytes.fromhex(k["id"]), "secret": octets(k["secret"]), "active": seconds(k["activeAt"]),
                 "retired": seconds(k["retiredAt"]) if "retiredAt" in k else None} for k in self.e["ringKeys"]]

    def is_retired(self, key):
        return key["retired"] is not None and key["retired"] <= self.now

    def newest(self):
        keys = [k for k in self.ring() if k["active"] <= self.now and not self.is_retired(k)]
        later(keys, "ring-empty")
        return max(keys, key=lambda k: k["active"])

    def key(self, name):
        keys = [k for k in self.ring() if k["id"] == name]
        need(keys and not self.is_retired(keys[0]) and keys[0]["active"] <= self.now + 60, "ring-key")
        later(keys[0]["active"] <= self.now, "ring-key")
        return keys[0]["secret"]

    # A hello.

    def challenge(self, o):
        """Checks a hello; returns the Binding without a nonce, and the key of the ring."""
        later(o["spec"]["signerName"].startswith(CHALLENGE_SIGNER), "hello-signer")
        filed = Filed(o)
        evidence = filed.evidence()
        later(filed.created <= self.now, "request-in-the-future")
        need(self.now - filed.created <= 300, "hello-expired")
        statements, certificates = read_bundle(evidence)
        need([kind for kind, _ in statements] == [HELLO], "bundle-statements")
        hello = read_hello(statements[0][1])
        node = self.policy(filed, hello["targetSigner"])
        self.open_road(hello["road"], hello["clusterID"])
        keys = Keys(hello["road"], hello, certificates)
        keys.check_ak()
        self.check_request(filed)
        _, machine = self.trust(keys)
        self.membership(node, machine)
        key = self.newest()
        binding = self.expected(filed, keys, hello["targetSigner"], hello["clusterID"])
        return binding | {"keyID": key["id"], "issuedAt": filed.created, "notAfter": filed.created + 600}, key["secret"]

    def expected(self, filed, keys, signer, cluster):
        return {"road": keys.road, "clusterID": cluster, "signerName": signer, "requester": filed.requester, "expirationSeconds": filed.expiration,
                "machineKey": keys.machine_key, "akName": keys.ak_name, "requestHash": filed.request.hash}

    # An answer.

    def verify(self, o):
        """Checks an answer; returns what was found."""
        filed = Filed(o)
        evidence = filed.evidence()
        node = self.policy(filed, filed.signer)
        statements, certificates = read_bundle(evidence)
        kinds = [kind for kind, _ in statements]
        need(len(kinds) >= 2 and kinds == [CERTIFY, PROOF, QUOTE, EVENT_LOG][:len(kinds)], "bundle-statements")
        certify = read("certify", statements[0][1])
        need(certify["tpmTPublic"], "message-encoding")
        proof = read_proof(statements[1][1])
        quote = read_quote(statements[2][1]) if len(kinds) > 2 else None
        if len(kinds) > 3:
            need(1 <= len(tlv(statements[3][1], 0x04, "message-encoding")[0]) <= 1 << 17, "message-encoding")
        echo = proof["echo"]
        keys = Keys(echo["road"], proof, certificates)
        self.open_road(echo["road"], echo["clusterID"])
        compare(echo, self.expected(filed, keys, filed.signer, echo["clusterID"]))
        check_window(echo)
        later(filed.created <= self.now, "request-in-the-future")
        need(filed.created >= echo["issuedAt"] - 60, "answer-early")
        need(filed.created <= echo["notAfter"], "answer-late")
        need(self.now - filed.created <= 3600, "answer-old")
        secret = labelled(self.key(echo["keyID"]), "tpm/v1", "secret", proof["binding"])
        statement = self.statement(filed, keys, certify, labelled(secret, "tpm/v1", "certify", proof["binding"]))
        statement.check()
        quoted = self.quote(keys, statement, quote, labelled(secret, "tpm/v1", "quote", proof["binding"]))
        self.check_request(filed)
        statement.check_signature()
        if quoted:
            quoted.check_signature()
        profile, machine = self.trust(keys)
        self.check_profile(keys, profile, statement)
        for p in self.good or []:
            need(quoted.value(p["bank"], p["index"]) == octets(p["value"]), "pcr-policy")
        member = self.membership(node, machine)
        if member:
            self.check_provider_id(filed, node, member.get("providerID"), keys.chain)
        return {"nodeName": node, "machine": machine, "profile": profile.get("name"), "tpmResident": statement.resident(),
                "providerID": member.get("providerID") if member else None}

    def check_provider_id(self, filed, node, listed, chain):
        """Holds the provider ID that the list vouches for against Google's certificate, the inventory and the request."""
        claimed, owns = filed.request.provider_id, [m.get("providerID") for m in self.e["machines"] if m["asked"] == node]
        stated = chain[0].instance and "gce://" + "/".join(chain[0].instance[i] for i in ("project", "zone", "name")) if chain else None
        for known in [*owns, listed]:
            foreign = known and known.split("://")[0] in ("aws", "azure", "gce") and known != stated
            need(not (stated and foreign), "provider-id-evidence")
        later(not claimed or listed or stated or any(owns), "provider-id")
        need(claimed in (None, listed), "provider-id")

    def statement(self, filed, keys, certify, data):
        options = ["requireTPMResident"] if self.e.get("requireTPMResident") or "recovery" in filed.signer else []
        if keys.road == AK and any(i["profile"].get("insecureAllowSHA1Signature") for i in self.e["issuers"]):
            options.append("insecureAllowSHA1Signature")
        return Statement(encoded({"attest": certify["tpmSAttest"], "signature": certify["signature"], "public": certify["tpmTPublic"],
                                  "akPublic": keys.ak.raw, "akKey": key_spki(keys.ak_key), "qualifyingData": data,
                                  "key": filed.request.spki, "options": options}))

    def quote(self, keys, statement, quote, data):
        if quote is None:
            need(self.good is None, "quote-missing")
            return None
        quoted = Quote(encoded({"attest": quote["tpmSAttest"], "signature": quote["signature"], "akPublic": keys.ak.raw,
                                "qualifyingData": data, "pcrs": quote["pcrs"]}))
        quoted.check()
        same = quoted.attest.signer == statement.attest.signer and quoted.attest.counts == statement.attest.counts
        need(same, "quote-boot")
        return quoted

    @staticmethod
    def check_profile(keys, profile, statement):
        if keys.road == EK:
            return
        need(HASHES[statement.signature.hash] != "sha1" or profile.get("insecureAllowSHA1Signature"), "signature-hash")
        primary = statement.attest.signer in [primary_name(statement.ak, handle) for handle in HIERARCHIES]
        need(primary or profile.get("allowAKBelowOtherKeys"), "ak-parent")


def read_quote(data):
    quote, pcrs = read("quote", data), []
    for element in elements(quote["pcrs"]):
        p = read("pcr", element)
        need(p["bank"] in HASHES, "pcr-bank")
        need(len(p["value"]) == hashlib.new(HASHES[p["bank"]]).digest_size, "pcr-value")
        if pcrs:
            before, this = (pcrs[-1]["bank"], pcrs[-1]["index"]), (p["bank"], p["index"])
            need(before != this, "pcr-duplicate")
            need(before < this, "message-encoding")
        pcrs.append(p)
    need(pcrs, "message-encoding")
    return quote | {"pcrs": [encoded(p) for p in pcrs]}
