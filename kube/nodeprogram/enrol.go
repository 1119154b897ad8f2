package nodeprogram

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// enrolment is one run of the command enrol: the operator's CA certifies the AK of the file, and
// the certificate goes to where the file says that it is.
type enrolment struct {
	kind     *certified
	nodeName string
	ca       *x509.Certificate
	ek       string
	dir      string // where requests and replies are
	owner    secret.Value[[]byte]
	stdout   io.Writer
}

// enrol reads the command line, and runs the command.
func enrol(ctx context.Context, c *authenticator.Config, args []string, stdout io.Writer) error {
	e := enrolment{nodeName: c.NodeName, stdout: stdout}
	flags := flag.NewFlagSet("enrol", flag.ContinueOnError) // errors go to standard error
	ca := flags.String("ca", "", "the CA's certificate, in PEM")
	flags.StringVar(&e.dir, "dir", "", "the folder where requests and replies are")
	flags.StringVar(&e.ek, "ek", "rsa-2048", "the endorsement key that the CA knows")
	owner := flags.String("owner-password-file", "", "a file with the password of the TPM's owner, to write the certificate to NV; default: the empty password")
	if err := flags.Parse(args); err != nil || *ca == "" || e.dir == "" || flags.NArg() != 0 {
		return fmt.Errorf("%w: want enrol --ca FILE --dir FOLDER [--ek NAME] [--owner-password-file FILE]", errCommandLine)
	}
	var ok bool
	if e.kind, ok = c.Kind.(*certified); !ok {
		return refusal.Config("evidence.tpm.ak", "a key that no CA of yours certifies", "an object, which says where the key's certificate is to be")
	}
	if e.kind.AK.Handle != 0 { // its password would be needed beside the endorsement key's, and a wrong one counts
		return refusal.Config("evidence.tpm.ak.handle", "a key that somebody else made", "a template: enrol proves keys that it makes")
	}
	chain, err := readCertificates(*ca)
	if err != nil {
		return err
	}
	e.ca = chain[0]
	if *owner != "" {
		if e.owner, err = readPassword(*owner); err != nil {
			return err
		}
	}
	return e.run(ctx)
}

// run asks the CA, and stores what it certified.
func (e *enrolment) run(ctx context.Context) error {
	certificate, err := e.ask(ctx)
	if err != nil {
		return err
	}
	device, err := tpm.OpenTPM(e.kind.Path)
	if err != nil {
		return err
	}
	err = e.store(ctx, device, certificate)
	return errors.Join(err, device.Close())
}

// ask has the TPM prove the AK to the CA, and returns the certificate.
func (e *enrolment) ask(ctx context.Context) ([]byte, error) {
	ek, ok := eks()[e.ek]
	if !ok {
		return nil, refusal.Config("--ek", refusal.Quote(e.ek), "a name as evidence.tpm.ek has it")
	}
	id, err := attest.ClusterID(e.ca)
	if err != nil {
		return nil, err
	}
	k := *e.kind.TPM
	k.Options = tpm.ProverOptions{EK: &ek.origin, EndorsementPassword: k.Options.EndorsementPassword}
	k.PersistentEK = ek.handle
	prover, err := k.Open(ctx)
	if err != nil {
		return nil, err
	}
	certificate, err := e.exchange(ctx, prover, id)
	return certificate, errors.Join(err, prover.Close())
}

// exchange sends the two messages. The key of the requests is for nothing else.
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
	hello, err := e.carry(ctx, "hello", spec)
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
	answer, err := e.carry(ctx, "answer", spec)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(answer.Status.Certificate)
	if block == nil {
		for _, c := range answer.Status.Conditions {
			err = errors.Join(err, fmt.Errorf("the CA says %s: %s: %s", refusal.Text(c.Type), refusal.Text(c.Reason), refusal.Text(c.Message)))
		}
		return nil, errors.Join(errors.New("the CA gave no certificate"), err)
	}
	return block.Bytes, nil
}

const (
	// maxReply bounds a reply, in bytes.
	maxReply = 2 << 20
	// lookAgain is how long it takes from one look for a reply to the next.
	lookAgain = 200 * time.Millisecond
)

// carry puts a request into the folder, and waits for the reply. One that is still being written
// is read again.
func (e *enrolment) carry(ctx context.Context, name string, spec *csr.Spec) (*csr.Request, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(e.dir, e.nodeName+"-"+name+".json")
	if err := os.Remove(path + ".reply"); err != nil && !errors.Is(err, os.ErrNotExist) { // of an earlier run
		return nil, err
	}
	if err := safefile.Replace(path, safefile.Content(text)); err != nil {
		return nil, err
	}
	fmt.Fprintf(e.stdout, "waiting for %s.reply, which the CA makes from %s\n", path, path)
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		reply, err := files.ReadForeign(path+".reply", maxReply)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		request := csr.Filed(spec, csr.User{}, time.Now())
		if len(reply) != 0 && json.Unmarshal(reply, &request.Status) == nil {
			return request, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-look.C:
		}
	}
}

// store checks the certificate, and puts it where the file says that it is.
func (e *enrolment) store(ctx context.Context, device transport.TPM, certificate []byte) error {
	leaf, err := x509.ParseCertificate(certificate)
	if err != nil {
		return fmt.Errorf("the CA's certificate: %w", err)
	}
	if err := leaf.CheckSignatureFrom(e.ca); err != nil {
		return refusal.Config("a certificate", "that the CA of --ca has not signed", "one that it has")
	}
	if err := e.kind.check(ctx, e.kind.TPM, device, leaf); err != nil {
		return err
	}
	where := e.kind.file
	if where == "" {
		where = fmt.Sprintf("NV index 0x%08x", uint32(e.kind.AK.CertificateIndex))
		err = tpmkey.WriteNVCertificate(ctx, device, e.kind.AK.CertificateIndex, certificate, tpmkey.NVCertificateOptions{OwnerPassword: e.owner})
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
