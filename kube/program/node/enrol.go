package node

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// enrolment is one run of the command enrol: the operator's CA certifies the AK of the configuration,
// and the certificate is stored in the file or NV index that the configuration names.
type enrolment struct {
	evidence *preparedTPM
	tpm      *authenticator.TPM // of the evidence, with its password
	nodeName string
	ca       *x509.Certificate
	ek       string
	carry    join.File // carries a request to the CA
	owner    secret.Value[[]byte]
	stdout   io.Writer
}

// enrolFlags are the flags of enrol.
type enrolFlags struct{ ca, dir, server, serverCA, ek, owner string }

func (f *enrolFlags) set() *flag.FlagSet {
	flags := flag.NewFlagSet("enrol", flag.ContinueOnError) // errors go to standard error
	flags.StringVar(&f.ca, "ca", "", "the CA's certificate, in PEM")
	flags.StringVar(&f.dir, "dir", "", "the folder of requests and replies")
	flags.StringVar(&f.server, "url", "", "the CA's server, https://HOST:PORT/enrol, instead of a folder")
	flags.StringVar(&f.serverCA, "server-ca", "", "the only CAs to trust for that server's certificate, in PEM")
	flags.StringVar(&f.ek, "ek", "rsa-2048", "the endorsement key on the CA's list")
	flags.StringVar(&f.owner, "owner-password-file", "", "a file with the password of the TPM's owner, to write the certificate to NV; default: the empty password")
	return flags
}

// enrol parses the command line, and runs the command.
func enrol(ctx context.Context, c *authenticator.Config, args []string, stdout io.Writer) error {
	e := enrolment{nodeName: c.NodeName, stdout: stdout}
	f := new(enrolFlags)
	flags := f.set()
	if err := flags.Parse(args); err != nil || f.ca == "" || (f.dir == "") == (f.server == "") || (f.server == "") != (f.serverCA == "") || flags.NArg() != 0 {
		return fmt.Errorf("%w: want enrol --ca FILE (--dir FOLDER | --url URL --server-ca FILE) [--ek NAME] [--owner-password-file FILE]", errCommandLine)
	}
	e.ek = f.ek
	var ok bool
	if e.evidence, ok = c.Kind.(*preparedTPM); !ok || e.evidence.ak == nil {
		return refusal.Config("evidence.tpm.ak", "a key by name", "an object, which says where to store the key's certificate")
	}
	if e.evidence.AK.Handle != 0 { // it may have a password, of which wrong tries are counted
		return refusal.Config("evidence.tpm.ak.handle", "a persistent key", "a template: enrol proves only keys that it makes from one")
	}
	chain, err := readCertificates(f.ca)
	if err != nil {
		return err
	}
	e.ca = chain[0]
	if f.server == "" {
		e.carry = func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) { return e.carryIn(ctx, f.dir, spec) }
	} else if e.carry, err = overHTTPS(f.server, f.serverCA); err != nil {
		return err
	}
	if f.owner != "" {
		if e.owner, err = readPassword(f.owner); err != nil {
			return err
		}
	}
	return e.run(ctx)
}

// run gets the certificate from the CA, and stores it.
func (e *enrolment) run(ctx context.Context) (err error) {
	if e.tpm, err = e.evidence.password.ready(ctx, e.evidence.TPM); err != nil {
		return err
	}
	certificate, err := e.request(ctx)
	if err != nil {
		return err
	}
	device, err := tpm.OpenTPM(e.tpm.Path)
	if err != nil {
		return err
	}
	err = e.store(ctx, device, certificate)
	return errors.Join(err, device.Close())
}

// request has the TPM prove the AK to the CA, and returns the certificate.
func (e *enrolment) request(ctx context.Context) ([]byte, error) {
	ek, ok := eks()[e.ek]
	if !ok {
		return nil, refusal.Config("--ek", refusal.Quote(e.ek), "a name of evidence.tpm.ek")
	}
	id, err := attest.ClusterID(e.ca)
	if err != nil {
		return nil, err
	}
	k := *e.tpm
	k.Options = tpm.ProverOptions{EK: &ek.origin, EndorsementPassword: k.Options.EndorsementPassword}
	k.PersistentEK = ek.handle
	prover, err := k.Open(ctx)
	if err != nil {
		return nil, err
	}
	certificate, err := e.exchange(ctx, prover, id)
	return certificate, errors.Join(err, prover.Close())
}

// exchange sends hello and answer. The key of these requests is not used otherwise.
func (e *enrolment) exchange(ctx context.Context, prover attest.Prover, id string) ([]byte, error) {
	attester, err := attest.NewAttester(prover)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, key, e.nodeName, csr.CreateOptions{})
	if err != nil {
		return nil, err
	}
	subject := attest.Subject{Request: request, SignerName: csr.SignerClientTPM, ClusterID: id}
	spec, err := attester.Hello(ctx, subject)
	if err != nil {
		return nil, err
	}
	hello, err := e.carry(ctx, spec)
	if err != nil {
		return nil, err
	}
	challenge, err := attest.ChallengeOf(hello)
	if err != nil {
		return nil, err
	}
	if spec, err = attester.Answer(ctx, challenge, key, subject); err != nil {
		return nil, err
	}
	answer, err := e.carry(ctx, spec)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(answer.Status.Certificate)
	if block == nil {
		for _, c := range answer.Status.Conditions {
			err = errors.Join(err, fmt.Errorf("the CA's reply is %s: %s: %s", refusal.Text(c.Type), refusal.Text(c.Reason), refusal.Text(c.Message)))
		}
		return nil, errors.Join(errors.New("the CA issued no certificate"), err)
	}
	return block.Bytes, nil
}

// store checks the certificate, and stores it in the file or NV index of the configuration.
func (e *enrolment) store(ctx context.Context, device transport.TPM, certificate []byte) error {
	leaf, err := x509.ParseCertificate(certificate)
	if err != nil {
		return fmt.Errorf("the CA's certificate: %w", err)
	}
	if err := leaf.CheckSignatureFrom(e.ca); err != nil {
		return refusal.Config("a certificate", "with another issuer", "a certificate of the CA of --ca")
	}
	if err := e.evidence.check(ctx, e.tpm, device, leaf); err != nil {
		return err
	}
	where := e.evidence.ak.CertificatesFile
	if where == "" {
		where = fmt.Sprintf("NV index 0x%08x", uint32(e.evidence.AK.CertificateIndex))
		err = tpmkey.WriteNVCertificate(ctx, device, e.evidence.AK.CertificateIndex, certificate, tpmkey.NVCertificateOptions{OwnerPassword: e.owner})
	} else {
		err = safefile.Replace(where, safefile.Content(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	}
	if err != nil {
		return err
	}
	machine, err := (tpmcert.OtherNameIdentity{}).Identify(leaf)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "enrolled as %s until %s; the certificate is in %s\n", machine, leaf.NotAfter.UTC().Format(time.RFC3339), where)
	return err
}

// readPassword reads the password of a hierarchy.
func readPassword(path string) (secret.Value[[]byte], error) {
	text, err := safefile.Read(path, maxPassword, safefile.Private)
	if err != nil {
		return secret.Value[[]byte]{}, fmt.Errorf("%s: %w", path, err)
	}
	return secret.New(bytes.TrimSuffix(text, []byte("\n"))), nil
}
