#!/usr/bin/env python3
"""A node that joins with a TPM 2.0 by tpm2-tools, written from docs/protocol.md alone.

    answer_with_tools.py keys FOLDER      makes the AK and the key of the request
    answer_with_tools.py hello FOLDER     writes hello.json, the spec of the hello
    answer_with_tools.py answer FOLDER    reads the message of the condition in challenge, writes answer.json

FOLDER has node.json: clusterID, signerName, nodeName, expirationSeconds (0 for none), and ek:
"rsa" or "ecc" for the road of the EK, "" for that of the AK. The command keys writes ak.pub, the
AK's TPMT_PUBLIC, and uses up the persistent handles 0x81010010 and 0x81010011. On the road of
the AK hello needs its certificate, and those above it, in certs.pem. TPM2TOOLS_TCTI says which
TPM it is. This needs Python's standard library and tpm2-tools. It shows that the page is enough;
it is no program to join with: the secret of a challenge stands in a file of FOLDER.
"""

import base64
import json
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True

from join import (
    AK, CERTIFY, EK, HELLO, PROOF, Request, check_window, compare, labelled, machine_key, name_of, read_challenge, write, write_bundle, write_pem)
from structures import Public, Reader, Refused, der, key_spki, need, sized

AK_HANDLE, KEY_HANDLE = "0x81010010", "0x81010011"
RESIDENT = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign"
NODE_CLIENT = ["digital signature", "client auth"]
ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")


class Node:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.config = json.loads((self.folder / "node.json").read_text())

    # The TPM.

    def tool(self, *words):
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)
        subprocess.run(["tpm2_flushcontext", "-t"], cwd=self.folder, check=True, capture_output=True)

    def public(self, context):
        """The TPMT_PUBLIC of a loaded or persistent key."""
        self.tool("tpm2_readpublic", "-Q", "-c", context, "-o", "public")
        return (self.folder / "public").read_bytes()[2:]

    def make_keys(self):
        attributes = RESIDENT + "|restricted"
        self.tool("tpm2_createprimary", "-Q", "-C", "e", "-g", "sha256", "-G", "ecc256:ecdsa-sha256:null", "-a", attributes, "-c", "ak.ctx")
        self.tool("tpm2_createprimary", "-Q", "-C", "o", "-g", "sha256", "-G", "ecc256:ecdsa-sha256:null", "-a", RESIDENT, "-c", "key.ctx")
        self.tool("tpm2_evictcontrol", "-Q", "-C", "o", "-c", "ak.ctx", AK_HANDLE)
        self.tool("tpm2_evictcontrol", "-Q", "-C", "o", "-c", "key.ctx", KEY_HANDLE)
        (self.folder / "ak.pub").write_bytes(self.public(AK_HANDLE))
        if self.config["ek"]:
            self.tool("tpm2_createek", "-Q", "-G", self.config["ek"], "-c", "ek.ctx")
            (self.folder / "ek.pub").write_bytes(self.public("ek.ctx"))

    def certify(self, data):
        """TPM2_Certify of the key by the AK: tpm2_certify takes no qualifying data."""
        password = bytes.fromhex("40000009" + "0000" + "00" + "0000")
        handles = bytes.fromhex(KEY_HANDLE[2:] + AK_HANDLE[2:])
        body = handles + len(2 * password).to_bytes(4, "big") + 2 * password + sized(data) + bytes.fromhex("0010")
        (self.folder / "command").write_bytes(bytes.fromhex("8002") + (10 + len(body)).to_bytes(4, "big") + bytes.fromhex("00000148") + body)
        self.tool("tpm2_send", "-o", "response", "command")
        r = Reader((self.folder / "response").read_bytes(), "the TPM's answer")
        r.take(6)
        need(r.number(4) == 0, "TPM2_Certify")
        size = r.number(4)
        parameters = Reader(r.take(size), "the TPM's answer")
        attest = parameters.buffer(1024)
        return attest, parameters.data

    def activate(self, credential):
        """TPM2_ActivateCredential, with the file that the tools want."""
        (self.folder / "credential").write_bytes(
            bytes.fromhex("badcc0de00000001") + sized(credential["idObject"]) + sized(credential["encryptedSecret"]))
        self.tool("tpm2_startauthsession", "--policy-session", "-S", "session.ctx")
        self.tool("tpm2_policysecret", "-Q", "-S", "session.ctx", "-c", "e")
        self.tool("tpm2_activatecredential", "-Q", "-c", AK_HANDLE, "-C", "ek.ctx", "-i", "credential", "-o", "secret", "-P", "session:session.ctx")
        self.tool("tpm2_flushcontext", "session.ctx")
        return (self.folder / "secret").read_bytes()

    # The messages.

    def keys(self):
        """The fields of a hello and a proof that name keys, the road, what the Binding says of it, and the certificates."""
        ak = (self.folder / "ak.pub").read_bytes()
        if self.config["ek"]:
            ek = Public((self.folder / "ek.pub").read_bytes()).key()
            return {"ekPublic": key_spki(ek), "akPublic": ak}, {"road": EK, "machineKey": machine_key(ek), "akName": name_of(ak)}, []
        blocks = re.findall(r"-----BEGIN CERTIFICATE-----(.*?)-----END", (self.folder / "certs.pem").read_text(), re.DOTALL)
        return {"akPublic": ak}, {"road": AK, "machineKey": machine_key(Public(ak).key()), "akName": b""}, [base64.b64decode(b) for b in blocks]

    def request(self):
        """The PKCS#10 request: made and signed once, by the key in the TPM."""
        file = self.folder / "request.der"
        if not file.exists():
            names = [("55040a", "system:nodes"), ("550403", "system:node:" + self.config["nodeName"])]
            subject = b"".join(der(0x31, der(0x30, der(0x06, bytes.fromhex(kind)) + der(0x0C, text.encode()))) for kind, text in names)
            info = der(0x30, der(0x02, b"\0") + der(0x30, subject) + key_spki(Public(self.public(KEY_HANDLE)).key()) + der(0xA0, b""))
            (self.folder / "info").write_bytes(info)
            self.tool("tpm2_sign", "-Q", "-c", KEY_HANDLE, "-g", "sha256", "-f", "plain", "-o", "info.sig", "info")
            file.write_bytes(der(0x30, info + ECDSA_SHA256 + der(0x03, b"\0" + (self.folder / "info.sig").read_bytes())))
        return file.read_bytes()

    def spec(self, name, signer, statements, certificates):
        pem = write_pem(self.request(), b"tpm/v1", write_bundle(statements, certificates))
        spec = {"signerName": signer, "request": base64.b64encode(pem).decode(), "usages": NODE_CLIENT}
        if self.config["expirationSeconds"]:
            spec["expirationSeconds"] = self.config["expirationSeconds"]
        (self.folder / name).write_text(json.dumps(spec))

    def hello(self):
        keys, bound, certificates = self.keys()
        hello = write("hello", {"road": bound["road"], "clusterID": self.config["clusterID"], "targetSigner": self.config["signerName"]} | keys)
        self.spec("hello.json", "cluster.x-k8s.io/kubelet-attestation-challenge-tpm", [(HELLO, hello)], certificates)

    def answer(self):
        text = (self.folder / "challenge").read_text()
        data = base64.b64decode(text, validate=True)
        need(base64.b64encode(data).decode() == text, "message-encoding")
        challenge = read_challenge(data)
        keys, bound, certificates = self.keys()
        request = Request(self.request())
        check_window(challenge["echo"])
        compare(challenge["echo"], bound | {
            "clusterID": self.config["clusterID"], "signerName": self.config["signerName"], "expirationSeconds": self.config["expirationSeconds"],
            "requestHash": request.hash})
        secret = challenge["clear"] or self.activate(challenge["credential"])
        attest, signature = self.certify(labelled(secret, "tpm/v1", "certify", challenge["binding"]))
        certify = write("certify", {"tpmSAttest": attest, "signature": signature, "tpmTPublic": self.public(KEY_HANDLE)})
        proof = write("proof", {"binding": challenge["binding"]} | keys)
        self.spec("answer.json", self.config["signerName"], [(CERTIFY, certify), (PROOF, proof)], certificates)


def main():
    verbs = {"keys": Node.make_keys, "hello": Node.hello, "answer": Node.answer}
    if len(sys.argv) != 3 or sys.argv[1] not in verbs:
        sys.exit("usage: answer_with_tools.py keys|hello|answer FOLDER")
    try:
        verbs[sys.argv[1]](Node(sys.argv[2]))
    except Refused as e:
        sys.exit(f"refused: {e}")
    except subprocess.CalledProcessError as e:
        sys.exit(f"{e}: {e.stderr.decode()}")


if __name__ == "__main__":
    main()
