// Node is a node's side of a join, on a machine whose TPM has an AK certificate. In between
// its three commands the requests go to the API server and come back, here by kubectl:
//
//	node -name node-1 -cluster 3f1c… hello | kubectl create -f -   # and wait for the challenge
//	kubectl get csr … -o json | node -name node-1 -cluster 3f1c… answer | kubectl create -f -
//	kubectl get csr … -o json | node install
//
// The folder then has a key file, which this TPM alone can load, and the certificate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
)

// node is what the commands work with.
type node struct {
	tpm                            *tpmkey.Shared // its users, a key and an attester, take turns
	name, cluster, provider, chain string
	folder                         string
	stdin                          io.Reader
	stdout                         io.Writer
}

func main() {
	n := node{stdin: os.Stdin, stdout: os.Stdout}
	flag.StringVar(&n.name, "name", "", "the node's name")
	flag.StringVar(&n.cluster, "cluster", "", "the cluster's ID, from whoever runs it")
	flag.StringVar(&n.provider, "provider-id", "", "the node's provider ID, if it has one")
	flag.StringVar(&n.chain, "chain", "", "PEM file: what stands between the AK certificate and its root, if anything")
	flag.StringVar(&n.folder, "folder", "/var/lib/kubelet/pki", "where key, request and certificate are kept")
	device := flag.String("tpm", "/dev/tpmrm0", "the TPM: a device, or a Unix socket")
	flag.Parse()
	opened, err := tpm.OpenTPM(*device)
	if err == nil {
		n.tpm = tpmkey.Share(opened)
		err = errors.Join(n.run(context.Background(), flag.Arg(0)), opened.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func (n *node) run(ctx context.Context, command string) error {
	switch command {
	case "hello":
		return n.hello(ctx)
	case "answer":
		return n.answer(ctx)
	case "install":
		object, err := n.read()
		if err == nil && len(object.Status.Certificate) == 0 {
			err = errors.New("no certificate was issued yet")
		}
		if err != nil {
			return err
		}
		return n.write("kubelet.crt", object.Status.Certificate)
	}
	return errors.New("which of hello, answer and install?")
}

// hello makes the node's key in the TPM, the certificate request, and asks for a challenge.
func (n *node) hello(ctx context.Context) error {
	key, err := tpmkey.Create(ctx, n.tpm, tpmkey.ECDSAP256, nil)
	if err != nil {
		return err
	}
	defer func() { _ = key.Close() }()
	file, err := key.File().Encode()
	if err != nil {
		return err
	}
	request, err := csr.Create(csr.PurposeClient, key, n.name, csr.CreateOptions{ProviderID: n.provider})
	if err != nil {
		return err
	}
	if err := errors.Join(n.write("kubelet.key", file), n.write("request.der", request)); err != nil {
		return err
	}
	attester, err := n.attester()
	if err != nil {
		return err
	}
	return n.file(attester.Hello(ctx, n.subject(request)))
}

// answer has the TPM certify the key for the challenge in a denied hello.
func (n *node) answer(ctx context.Context) error {
	object, err := n.read()
	if err != nil {
		return err
	}
	challenge, err := attest.ChallengeOf(object)
	if err != nil {
		return err
	}
	request, requestErr := os.ReadFile(filepath.Join(n.folder, "request.der"))
	text, keyErr := os.ReadFile(filepath.Join(n.folder, "kubelet.key"))
	if err := errors.Join(requestErr, keyErr); err != nil {
		return err
	}
	file, err := tpmkey.ParseFile(text)
	if err != nil {
		return err
	}
	key, err := tpmkey.Load(ctx, n.tpm, file, nil)
	if err != nil {
		return err
	}
	defer func() { _ = key.Close() }()
	attester, err := n.attester()
	if err != nil {
		return err
	}
	return n.file(attester.Answer(ctx, challenge, key, n.subject(request)))
}

// subject is what the node's proof is bound to.
func (n *node) subject(request []byte) attest.Subject {
	return attest.Subject{Request: request, SignerName: csr.SignerClientTPM, ClusterID: n.cluster}
}

// attester is the node's side of the protocol, with the AK that the cloud left in the TPM.
func (n *node) attester() (*attest.Attester, error) {
	var options tpm.ProverOptions
	if n.chain != "" {
		text, err := os.ReadFile(n.chain)
		if err != nil {
			return nil, err
		}
		chain, err := tpmcert.ParseCertificatesPEM(text)
		if err != nil {
			return nil, err
		}
		options.Intermediates = tpmcert.CertificatesDER(chain)
	}
	prover, err := tpm.NewProver(n.tpm, tpm.GCERSA(), options)
	if err != nil {
		return nil, err
	}
	return attest.NewAttester(prover)
}

// file writes the object that goes to the API server.
func (n *node) file(spec *csr.Spec, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(n.stdout).Encode(csr.Request{
		APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest",
		Metadata: csr.Metadata{GenerateName: "node-"}, Spec: *spec,
	})
}

// read reads the object that comes back.
func (n *node) read() (*csr.Request, error) {
	text, err := io.ReadAll(io.LimitReader(n.stdin, csr.MaxRequestJSONSize+1))
	if err != nil {
		return nil, err
	}
	return csr.ParseRequest(text)
}

func (n *node) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(n.folder, name), content, 0o600)
}
