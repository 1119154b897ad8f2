// Node is a node's side of a join, on a machine whose TPM has an AK certificate. Between its
// three commands the requests go to the API server and come back, here with kubectl:
//
//	node -name node-1 -cluster 3f1c… hello | kubectl create -f -   # and wait for the challenge
//	kubectl get csr … -o json | node -name node-1 -cluster 3f1c… answer | kubectl create -f -
//	kubectl get csr … -o json | node install
//
// The folder then has a key file, which only this TPM can load, and the certificate.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
)

var (
	name     = flag.String("name", "", "the node's name")
	cluster  = flag.String("cluster", "", "the cluster's ID, from its administrator")
	provider = flag.String("provider-id", "", "the node's provider ID, if it has one")
	chain    = flag.String("chain", "", "PEM file: what stands between the AK certificate and its root, if anything")
	folder   = flag.String("folder", "/var/lib/kubelet/pki", "where key, request and certificate are kept")
	device   = flag.String("tpm", "/dev/tpmrm0", "the TPM: a device, or a Unix socket")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("node: ")
	flag.Parse()
	ctx := context.Background()
	switch flag.Arg(0) {
	case "hello":
		hello(ctx)
	case "answer":
		answer(ctx, must(attest.ChallengeOf(read())))
	case "install":
		certificate := read().Status.Certificate
		if len(certificate) == 0 {
			log.Fatal("no certificate was issued yet")
		}
		check(os.WriteFile(in("kubelet.crt"), certificate, 0o644))
	default:
		log.Fatal("want one of the commands hello, answer and install")
	}
}

// hello makes the node's key in the TPM and the certificate request, and asks for a
// challenge.
func hello(ctx context.Context) {
	shared, attester := open()
	key := must(tpmkey.Create(ctx, shared, tpmkey.ECDSAP256, tpmkey.Options{}))
	check(key.File().WriteFile(in("kubelet.key")))
	request := must(csr.Create(csr.PurposeClient, key, *name, csr.CreateOptions{ProviderID: *provider}))
	check(os.WriteFile(in("request.der"), request, 0o600))
	file(must(attester.Hello(ctx, subject(request))))
}

// answer has the TPM certify the key for the challenge in a denied hello.
func answer(ctx context.Context, challenge []byte) {
	shared, attester := open()
	key := must(tpmkey.Load(ctx, shared, must(tpmkey.ReadFile(in("kubelet.key"))), tpmkey.LoadOptions{}))
	request := must(os.ReadFile(in("request.der")))
	file(must(attester.Answer(ctx, challenge, key, subject(request))))
}

// open opens the TPM, which is shared by a key and an attester that take turns. The AK is
// the one that the cloud left in it. Everything that is opened ends with the process.
func open() (transport.TPM, *attest.Attester) {
	shared := tpmkey.Share(must(tpm.OpenTPM(*device)))
	var options tpm.ProverOptions
	if *chain != "" {
		options.Intermediates = tpmcert.CertificatesDER(must(tpmcert.ParseCertificatesPEM(must(os.ReadFile(*chain)))))
	}
	return shared, must(attest.NewAttester(must(tpm.NewProver(shared, tpm.GCERSA(), options))))
}

// subject names the request that the node's proof is bound to.
func subject(request []byte) attest.Subject {
	return attest.Subject{Request: request, SignerName: csr.SignerClientTPM, ClusterID: *cluster}
}

// file writes the object that goes to the API server.
func file(spec *csr.Spec) {
	check(json.NewEncoder(os.Stdout).Encode(csr.Request{
		APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest",
		Metadata: csr.Metadata{GenerateName: "node-"}, Spec: *spec,
	}))
}

// read reads the object that comes back.
func read() *csr.Request {
	return must(csr.ParseServerObject(must(io.ReadAll(io.LimitReader(os.Stdin, 4<<20)))))
}

func in(name string) string { return filepath.Join(*folder, name) }

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
