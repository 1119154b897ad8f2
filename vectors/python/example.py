"""The worked example of docs/protocol.md: every value on the page, made again from the others."""

import base64
import re

from credential import kdfa, kdfe, open_credential
from join import (
    CERTIFY, DOCUMENT, HELLO, PROOF, Request, labelled, machine_key, name_of, read_binding, read_bundle, read_challenge, read_pem, sha256, write,
    write_bundle, write_pem)
from signatures import CURVES, ECC
from statements import primary_name
from structures import Attest, Broken, Public
from verifier import Verifier, seconds


def read_page(text):
    """The values of the example by name, the PEM texts and the message of the condition."""
    section = text.partition("<!-- example")[2].partition("<!-- end of the example")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    values, pem, message = {}, [], None
    for language, block in blocks:
        if language == "pem":
            pem.append(block.encode())
        elif " =" not in block:
            message = block.strip()
        else:
            for name, value in re.findall(r"^(\w+) =((?: .*)?(?:\n    .*)*)$", block, re.MULTILINE):
                values[name] = "".join(value.split())
    if len(pem) != 2 or message is None or not values:
        raise Broken("no worked example")
    return values, pem, message


class Example:
    def __init__(self, page):
        self.text, (self.hello, self.answer), self.message = read_page(page)
        texts = {"clusterID", "signerName", "challengeSigner", "requester", "expirationSeconds", "nodeName", "machine", "helloCreated", "answerCreated", "verified",
                 "documentMachine", "audience"}
        self.v = {name: bytes.fromhex(value) for name, value in self.text.items() if name not in texts}

    def made(self):
        """Each value that follows from others, as it follows."""
        t, v = self.text, self.v
        request, ak, attest = Request(v["request"]), Public(v["akPublic"]), Attest(v["attest"])
        binding = write("binding", {
            "road": 0, "keyID": v["keyID"], "nonce": v["nonce"], "issuedAt": seconds(t["helloCreated"]), "notAfter": seconds(t["helloCreated"]) + 600,
            "clusterID": t["clusterID"], "signerName": t["signerName"], "requester": t["requester"], "expirationSeconds": int(t["expirationSeconds"]),
            "machineKey": v["machineKey"], "akName": b"", "requestHash": v["requestHash"]})
        secret = labelled(v["K"], "tpm/v1", "secret", binding)
        certify = write("certify", {"tpmSAttest": v["attest"], "signature": v["signature"], "tpmTPublic": v["keyPublic"]})
        hello = write("hello", {"road": 0, "clusterID": t["clusterID"], "targetSigner": t["signerName"], "akPublic": v["akPublic"]})
        proof = write("proof", {"binding": binding, "akPublic": v["akPublic"]})
        certificates = read_bundle(read_pem(self.answer)[2])[1]
        challenge = write("challenge", {"binding": binding, "clear": secret})
        yield "requestHash", request.hash
        yield "machineKey", machine_key(ak.key())
        yield "hello", hello
        yield "binding", binding
        yield "S", secret
        yield "challenge", challenge
        yield "qualifyingData", labelled(secret, "tpm/v1", "certify", binding)
        yield "qualifyingData", attest.extra
        yield "akName", name_of(v["akPublic"])
        yield "akQualifiedName", primary_name(ak)
        yield "akQualifiedName", attest.signer
        yield "keyName", name_of(v["keyPublic"])
        yield "keyName", attest.name
        yield "proof", proof
        self.v |= {"the PEM of the hello": self.hello, "the PEM of the answer": self.answer, "the message": self.message.encode()}
        yield "the PEM of the hello", write_pem(v["request"], b"tpm/v1", write_bundle([(HELLO, hello)], certificates))
        yield "the PEM of the answer", write_pem(v["request"], b"tpm/v1", write_bundle([(CERTIFY, certify), (PROOF, proof)], certificates))
        yield "the message", base64.b64encode(challenge)
        yield from self.credential()
        yield from self.document()

    def credential(self):
        v = self.v
        curve, d = CURVES[3], int.from_bytes(v["ekPrivate"], "big")
        point = curve.times(d, curve.base)
        m, x = read_challenge(v["credentialChallenge"]), v["encryptedSecret"][2:34]
        z = curve.times(d, (int.from_bytes(x, "big"), int.from_bytes(v["encryptedSecret"][36:], "big")))[0].to_bytes(32, "big")
        seed = kdfe("sha256", z, b"IDENTITY", x, v["ekPoint"][:32], 256)
        yield "ekPoint", b"".join(n.to_bytes(32, "big") for n in point)
        yield "idObject", m["credential"]["idObject"]
        yield "encryptedSecret", m["credential"]["encryptedSecret"]
        yield "credentialAKName", m["echo"]["akName"]
        yield "Z", z
        yield "seed", seed
        yield "hmacKey", kdfa("sha256", seed, b"INTEGRITY", b"", 256)
        yield "aesKey", kdfa("sha256", seed, b"STORAGE", v["credentialAKName"], 128)
        yield "credentialS", open_credential((ECC, 3, *point), d, v["credentialAKName"], m["credential"])
        yield "credentialS", labelled(v["K"], "tpm/v1", "secret", m["binding"])

    def document(self):
        v, machine = self.v, self.text["documentMachine"]
        key = sha256(b"nodeattest machine\0" + machine.encode())
        binding = write("binding", read_binding(v["binding"]) | {
            "road": DOCUMENT, "machineKey": key, "signerName": "cluster.x-k8s.io/kube-apiserver-client-kubelet-gce"})
        secret = labelled(v["K"], "gce/v1", "secret", binding)
        value = labelled(secret, "gce/v1", "document", binding)
        v["audience"] = self.text["audience"].encode()
        yield "documentMachineKey", key
        yield "documentBinding", binding
        yield "documentS", secret
        yield "documentValue", value
        yield "audience", b"nodeattest:" + base64.urlsafe_b64encode(value).rstrip(b"=")

    def verified(self):
        """A verifier with the example's values challenges its hello and accepts its answer."""
        t = self.text
        profile = {"name": "the example's", "extKeyUsage": ["2.23.133.8.3"], "identity": ["othername"]}
        verifier = Verifier({
            "now": t["verified"], "clusterIDs": [t["clusterID"]], "policy": {"signerNames": [t["signerName"]]},
            "ringKeys": [{"id": t["keyID"], "secret": base64.b64encode(self.v["K"]).decode(), "activeAt": t["helloCreated"]}],
            "issuers": [{"roots": [base64.b64encode(self.v["root"]).decode()], "profile": profile}],
            "machines": [{"asked": t["nodeName"]}],
            "members": [{"nodeName": t["nodeName"], "machine": t["machine"], "providerID": Request(self.v["request"]).provider_id}]})

        def filed(pem, signer, created):
            return {"metadata": {"creationTimestamp": created}, "spec": {"request": base64.b64encode(pem).decode(), "signerName": signer, "username": t["requester"],
                                                                         "expirationSeconds": int(t["expirationSeconds"])}}
        binding, key = verifier.challenge(filed(self.hello, t["challengeSigner"], t["helloCreated"]))
        if write("binding", binding | {"nonce": self.v["nonce"]}) != self.v["binding"] or key != self.v["K"]:
            raise Broken("the hello gets another challenge")
        found = verifier.verify(filed(self.answer, t["signerName"], t["answerCreated"]))
        if found["machine"] != t["machine"]:
            raise Broken(f"the answer is of {found}")

    def count(self):
        """Verifies the example; returns how many values of it were made again."""
        n = 0
        for name, value in self.made():
            n += 1
            if self.v[name] != value:
                raise Broken(f"{name} is {self.v[name].hex()}, and follows as {value.hex()}")
        self.verified()
        return n
