package tpm

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// ekJoin is one node on the EK's road and its control plane, inside the package, where
// the secret of a challenge can be known.
type ekJoin struct {
	tpm      *tpmsim.FaultyTPM
	attester *attest.Attester
	verifier *attest.Verifier
	key      tpmkey.Certifiable
	subject  attest.Subject
	ring     attest.RingKey
	secret   []byte
	wire     [][]byte // messages in both directions
}

func newEKJoin(t *testing.T, tpm *tpmsim.TPM) *ekJoin {
	t.Helper()
	private := tpmlab.NewECDSA(t, elliptic.P256())
	request, err := csr.Create(csr.PurposeClient, private, "node-1", csr.CreateOptions{})
	testkit.NoError(t, err)
	j := &ekJoin{tpm: tpmsim.Faulty(tpm, nil), key: mustSoftwareKey(t, private),
		subject: attest.Subject{Request: request, SignerName: csr.SignerClientTPM, ClusterID: "cluster-1"}}
	origin := EKP256()
	prover, err := NewProver(j.tpm, AKSource{Template: AKTemplateECDSAP256()}, ProverOptions{EK: &origin,
		Intermediates: [][]byte{tpm.CA().EKIntermediate().Raw}})
	testkit.NoError(t, err)
	if j.attester, err = attest.NewAttester(prover); err != nil {
		t.Fatal(err)
	}
	j.ring = attest.NewRingKey(time.Now().Add(-time.Hour))
	ring, err := attest.NewStaticKeyRing(j.ring)
	testkit.NoError(t, err)
	eks, err := tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: []*x509.Certificate{tpm.CA().Root()}, Profile: tpmcert.EKProfileTCG()}}})
	testkit.NoError(t, err)
	kind, err := NewKind(KindConfig{EKs: eks})
	testkit.NoError(t, err)
	j.verifier, err = attest.NewVerifier(attest.VerifierConfig{KeyRing: ring, Kinds: []attest.Kind{kind},
		Policy: &csr.Policy{ClusterIDs: []string{"cluster-1"}, SignerNames: []string{csr.SignerClientTPM}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: "m", NodeName: "node-1", BootstrapReady: true}, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			return r.InsecureAdmitAnyone(), nil
		})})
	testkit.NoError(t, err)
	return j
}

// object files the node's request.
func (j *ekJoin) object(spec *csr.Spec) (*csr.Request, error) {
	bundle, err := csr.Parse(spec.Request)
	if err != nil {
		return nil, err
	}
	j.wire = append(j.wire, bundle.Data)
	return csr.Filed(spec, csr.User{Username: "system:bootstrap:attest", Groups: []string{"system:bootstrappers", "system:authenticated"}}, time.Now()), nil
}

// run goes the whole road, and notes the secret as soon as there is one. It prints
// everything that there is to print.
func (j *ekJoin) run(ctx context.Context) error {
	spec, err := j.attester.Hello(ctx, j.subject)
	if err != nil {
		return err
	}
	hello, err := j.object(spec)
	if err != nil {
		return err
	}
	der, err := j.verifier.Challenge(ctx, hello)
	if err != nil {
		return err
	}
	j.wire = append(j.wire, der)
	c, err := message.ParseChallenge(der)
	if err != nil {
		return err
	}
	if c.Clear != nil {
		return fmt.Errorf("the secret is in the clear")
	}
	binding, err := c.Binding.Marshal()
	if err != nil {
		return err
	}
	key := j.ring.Secret.Reveal()
	j.secret = message.Secret(key[:], Provider+"/v1", binding)
	spec, err = j.attester.Answer(ctx, der, j.key, j.subject)
	if err != nil {
		return err
	}
	answer, err := j.object(spec)
	if err != nil {
		return err
	}
	r, err := j.verifier.Verify(ctx, answer)
	if err != nil {
		return err
	}
	log.Printf("%+v %+v %+v %+v %v %+v", c, j.attester, j.verifier, r, r.Facts(), r.Attested())
	return nil
}

// shows reports whether the text holds the secret in any spelling.
func (j *ekJoin) shows(text []byte) bool {
	if len(j.secret) == 0 {
		return false
	}
	for _, s := range []string{string(j.secret), hex.EncodeToString(j.secret), fmt.Sprintf("%X", j.secret), fmt.Sprint(j.secret),
		fmt.Sprintf("%q", j.secret), fmt.Sprintf("%#v", j.secret), base64.StdEncoding.EncodeToString(j.secret), base64.RawURLEncoding.EncodeToString(j.secret)} {
		if bytes.Contains(text, []byte(s)) {
			return true
		}
	}
	return false
}

// The transport fails at the nth command of the whole road, for every n and in every
// way: a clear error, no secret in it nor in anything that was printed or sent, no
// handle and no goroutine left.
func TestRoadEKWhateverFails(t *testing.T) {
	output := captured(t)
	tpm := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.P256}, AKs: []tpmsim.AK{}})
	j := newEKJoin(t, tpm)
	testkit.NoError(t, j.run(t.Context()))
	goroutines := runtime.NumGoroutine()
	commands := j.tpm.Commands()
	for way, faults := range map[string]func(n int) tpmsim.Faults{
		"not sent":        func(n int) tpmsim.Faults { return tpmsim.FailAt(n, nil) },
		"response lost":   tpmsim.LoseAt,
		"refused":         func(n int) tpmsim.Faults { return tpmsim.AnswerAt(n, tpm2.TPMRCLocality) },
		"connection lost": tpmsim.DropAt,
	} {
		t.Run(way, func(t *testing.T) {
			for n, code := range commands {
				j = newEKJoin(t, tpm)
				j.tpm.SetFaults(faults(n + 1))
				err := j.run(t.Context())
				if err == nil && code == tpm2.TPMCCContextSave {
					continue // where contexts cannot be saved, keys are made again
				}
				what := fmt.Sprintf("command %d of %d (0x%x) %s", n+1, len(commands), code, way)
				if err == nil {
					t.Errorf("%s: no error", what)
					continue
				}
				log.Printf("%v %+v %#v", err, err, err)
				if j.shows([]byte(err.Error())) {
					t.Errorf("%s: the secret is in the error", what)
				}
				j.tpm.SetFaults(nil)
				if err := j.attester.Close(); err != nil {
					t.Errorf("%s, then Close: %v", what, err)
				}
				if left := tpmlab.LoadedHandles(t, tpm); len(left) != 0 {
					t.Fatalf("%s: still loaded: %x", what, left)
				}
				checkUnseen(t, j, what, output)
			}
		})
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // a row's goroutine ends after Run has returned
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
}

func checkUnseen(t *testing.T, j *ekJoin, what string, output func() []byte) {
	t.Helper()
	if j.shows(output()) {
		t.Errorf("%s: the secret was printed", what)
	}
	for _, message := range j.wire {
		if j.shows(message) {
			t.Errorf("%s: the secret is in a message", what)
		}
	}
	j.wire = j.wire[:0]
}

// captured captures the process's output, on both streams and in the log, and returns the part
// since the last call.
func captured(t *testing.T) func() []byte {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "output")
	testkit.NoError(t, err)
	stdout, stderr, logger := os.Stdout, os.Stderr, log.Writer()
	os.Stdout, os.Stderr = file, file
	log.SetOutput(file)
	t.Cleanup(func() {
		os.Stdout, os.Stderr = stdout, stderr
		log.SetOutput(logger)
		_ = file.Close()
	})
	var seen int64
	return func() []byte {
		all, err := os.ReadFile(file.Name())
		testkit.NoError(t, err)
		fresh := all[seen:]
		seen = int64(len(all))
		if len(fresh) == 0 {
			t.Error("nothing was caught")
		}
		return fresh
	}
}
