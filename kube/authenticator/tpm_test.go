package authenticator

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/kube/internal/tpmcapability"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// lent is a TPM that Close leaves open, and that counts.
type lent struct{ *tpmsim.FaultyTPM }

func (lent) Close() error { return nil }

// tpmNode makes a node with a TPM, and a control plane that trusts its CA.
func tpmNode(t testing.TB, f *fakeAPI, device *tpmsim.TPM, change func(*TPM)) (*Authenticator, *tpmsim.FaultyTPM) {
	t.Helper()
	counted := tpmsim.Faulty(device, nil)
	ek := tpm.EKRSA2048()
	kind := &TPM{Device: func() (transport.TPMCloser, error) { return lent{counted}, nil }, AK: tpm.AKSource{Template: tpm.AKTemplateECDSAP256()},
		Options: tpm.ProverOptions{EK: &ek, Intermediates: tpmcert.CertificatesDER([]*x509.Certificate{device.CA().EKIntermediate()})}, PersistentEK: 0x81010001}
	if change != nil {
		change(kind)
	}
	f.verifier = tpmVerifier(t, f, device)
	a, _ := newNode(t, f, func(c *Config) { c.Kind = kind })
	return a, counted
}

func tpmVerifier(t testing.TB, f *fakeAPI, device *tpmsim.TPM) *attest.Verifier {
	t.Helper()
	eks := testkit.Must(tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: []*x509.Certificate{device.CA().Root()}, Profile: tpmcert.EKProfileTCG()}}}))
	kind := testkit.Must(tpm.NewKind(tpm.KindConfig{EKs: eks, AKIssuers: []tpmcert.Issuer{{Roots: []*x509.Certificate{device.CA().Root()}, Profile: tpmcert.ProfileTCG()}}}))
	ring := testkit.Must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now().Add(-time.Hour))))
	id := testkit.Must(attest.ClusterID(f.server.Certificate()))
	v, err := attest.NewVerifier(attest.VerifierConfig{KeyRing: ring, Kinds: []attest.Kind{kind},
		Policy: &csr.Policy{ClusterIDs: []string{id}, SignerNames: []string{csr.SignerKubeAPIServerClientKubelet, csr.SignerRecoveryTPM}, Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			name := q.NodeName
			return &csr.Machine{Name: "machine-of-" + name, UID: "u", NodeName: name, BootstrapReady: true}, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			return r.InsecureAdmitAnyone(), nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// asymmetric are the commands in which a TPM computes with a private key, or makes one:
// which take a chip long.
var asymmetric = map[tpm2.TPMCC]bool{
	tpm2.TPMCCCreatePrimary: true, tpm2.TPMCCCreate: true, tpm2.TPMCCActivateCredential: true, tpm2.TPMCCCertify: true,
	tpm2.TPMCCSign: true, tpm2.TPMCCQuote: true, tpm2.TPMCCImport: true, tpm2.TPMCCECDHZGen: true, tpm2.TPMCCRSADecrypt: true,
}

// count counts commands, and asymmetric ones. A session that is salted has the
// TPM decrypt the salt with a private key.
func count(t *testing.T, counted *tpmsim.FaultyTPM) (all, slow int) {
	t.Helper()
	for _, cc := range counted.Commands() {
		if asymmetric[cc] || cc == tpm2.TPMCCStartAuthSession {
			slow++
		}
	}
	t.Logf("%d commands, %d asymmetric: %v", counted.Count(), slow, counted.Commands())
	return counted.Count(), slow
}

// checkFlushed checks that nothing stays loaded in a TPM.
func checkFlushed(t *testing.T, device *tpmsim.TPM) {
	t.Helper()
	if left, err := tpmsim.LoadedHandles(device); err != nil || len(left) != 0 {
		t.Errorf("left in the TPM: %v, %v", left, err)
	}
}

// TestTPMCommands counts the TPM's commands for a certificate, by the kind of key.
func TestTPMCommands(t *testing.T) {
	for name, c := range map[string]struct {
		persist   bool
		change    func(*TPM)
		all, slow int // at most
	}{
		"EK from its template": {false, nil, 33, 10},
		"EK that stands ready": {true, nil, 27, 8},
		"AK certificate":       {false, func(k *TPM) { k.AK, k.Options.EK = tpm.GCERSA(), nil }, 26, 7},
	} {
		t.Run(name, func(t *testing.T) {
			options := tpmsim.Options{PersistEKs: c.persist}
			device := tpmsim.Swtpm(t, options)
			a, counted := tpmNode(t, newFakeAPI(t), device, func(k *TPM) {
				if c.change != nil {
					c.change(k)
					k.Options.Intermediates = tpmcert.CertificatesDER([]*x509.Certificate{device.CA().AKIntermediate()})
				}
			})
			obtained(t, a)
			if all, slow := count(t, counted); all > c.all || slow > c.slow {
				t.Errorf("%d commands, %d asymmetric, want at most %d and %d", all, slow, c.all, c.slow)
			}
			checkFlushed(t, device)
			before := counted.Count()
			obtained(t, a)
			if counted.Count() != before {
				t.Error("a stored certificate asked the TPM")
			}
		})
	}
}

// TestForeignPersistentKey: a key at the EK's place that is not the EK is passed over.
func TestForeignPersistentKey(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	a, _ := tpmNode(t, newFakeAPI(t), device, func(k *TPM) { k.PersistentEK = 0x81010002 })
	obtained(t, a)
}

// TestTPMRecovery gets a recovery certificate on a key in the TPM, and comes back with it.
func TestTPMRecovery(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := tpmNode(t, f, tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true}), nil)
	c := a.config
	c.RecoverySigner, c.Dir = csr.SignerRecoveryTPM, mounttest.Disk(t)
	a = testkit.Must(New(c))
	stop := run(t, a)
	eventually(t, "a recovery certificate", func() bool { return a.Status().Recoverable })
	f.set(func() { f.noToken = true })
	stop()
	p := a.stored(recoveryFile)
	if block, _ := pem.Decode(p.Key); !p.Sealed || block.Type != "TSS2 PRIVATE KEY" {
		t.Errorf("its key: %s", block.Type)
	}
	f.move(a.stored(ClientFile).Leaf.NotAfter)
	obtained(t, a)
	if f.calls("create "+csr.RecoveryUserPrefix+testNode) != 2 {
		t.Errorf("requests: %q", f.log)
	}
	// Without the TPM's key the certificate is of no use, and the error says so.
	other, _ := tpmNode(t, f, tpmsim.Swtpm(t, tpmsim.Options{}), nil)
	c.Kind = other.config.Kind
	a = testkit.Must(New(c))
	testkit.MustDo(os.Remove(filepath.Join(c.Dir, ClientFile)))
	if _, err := a.snapshot(caller{plugin: true}).requestAnyVersion(t.Context(), nil, a.slots[0]); !errors.Is(err, errNoKey) {
		t.Errorf("another TPM: got %v", err)
	}
}

// TestWrongPassword: a wrong password of a maker's key is tried once, by however many processes,
// until its file is another one, and never where the TPM would be locked for others.
func TestWrongPassword(t *testing.T) {
	f := newFakeAPI(t)
	device := tpmsim.New(t, tpmsim.Options{})
	const handle = 0x81020000
	chain := makersKey(t, device, handle, "right")
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		testkit.MustDo(errors.Join(os.RemoveAll(file), os.WriteFile(file, []byte(password), 0o600)))
	}
	write("wrong\n")
	a, counted := tpmNode(t, f, device, func(k *TPM) {
		k.AK, k.AKPasswordFile, k.PersistentEK = tpm.AKSource{Handle: handle}, file, 0
		k.Options = tpm.ProverOptions{Certificates: chain}
	})
	tries := func(as caller, want int, text string) {
		t.Helper()
		before := tpmlab.Count(counted, tpm2.TPMCCCertify)
		for range 5 {
			f.move(f.now().Add(time.Minute))
			_, err := a.snapshot(as).runStep(t.Context(), a.slots[0])
			if noted := a.onDisk(ClientFile); text != "" && !strings.Contains(noted.Error, text) || text == "" && err != nil {
				t.Errorf("state %+v, %v, want %q", noted, err, text)
			}
			a = again(t, a)
		}
		if got := tpmlab.Count(counted, tpm2.TPMCCCertify) - before; got != want {
			t.Errorf("%d tries, want %d", got, want)
		}
	}
	tries(caller{daemon: true}, 1, tpmkey.ErrPassword.Error())
	tries(caller{plugin: true}, 0, tpmkey.ErrPassword.Error())
	write("also wrong") // the TPM allows three, and one was spent
	tries(caller{daemon: true}, 0, "until it has forgotten some")
	tpmlab.ForgetPasswords(t, device)
	tries(caller{daemon: true}, 1, tpmkey.ErrPassword.Error())
	tpmlab.ForgetPasswords(t, device)
	if err := a.Rotate(t.Context()); !errors.Is(err, tpmkey.ErrPassword) { // an operator may try
		t.Errorf("Rotate: %v", err)
	}
	tpmlab.ForgetPasswords(t, device)
	write("right\n")
	tries(caller{daemon: true}, 1, "")
	if a.stored(ClientFile) == nil || a.onDisk(ClientFile).Password != "" {
		t.Errorf("state %+v", a.onDisk(ClientFile))
	}
}

// TestPasswordFile: only a private file is read.
func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	k := &TPM{AKPasswordFile: file}
	if _, err := k.options(); !errors.Is(err, os.ErrNotExist) || k.password() == "" {
		t.Errorf("no file: %v", err)
	}
	testkit.MustDo(os.WriteFile(file, []byte("secret\n"), 0o600))
	first := k.password()
	if o, err := k.options(); err != nil || string(o.AKPassword.Reveal()) != "secret" || strings.Contains(first, "secret") {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"", "\n", "secret\r\n"} { // a try with it would count
		testkit.MustDo(os.WriteFile(file, []byte(text), 0o600))
		if _, err := k.options(); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%q: %v", text, err)
		}
	}
	testkit.MustDo(os.WriteFile(file, make([]byte, maxPasswordFile+1), 0o600))
	if _, err := k.options(); !errors.Is(err, refusal.Check("file")) || k.password() == first {
		t.Errorf("a long one: %v", err)
	}
	testkit.MustDo(os.Chmod(file, 0o640))
	if _, err := k.options(); !errors.Is(err, refusal.Check("file")) {
		t.Errorf("one for a group: %v", err)
	}
	if new(TPM).password() != "" {
		t.Error("identified without a file")
	}
}

// makersKey makes a key whose wrong passwords count, with a certificate and its chain.
func makersKey(t *testing.T, device *tpmsim.TPM, handle tpm2.TPMHandle, password string) [][]byte {
	t.Helper()
	template := tpm.AKTemplateECDSAP256()
	template.ObjectAttributes.NoDA = false
	made, err := (tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(*template),
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{UserAuth: tpm2.TPM2BAuth{Buffer: []byte(password)}}}}).Execute(device)
	if err != nil {
		t.Fatal(err)
	}
	_, err = (tpm2.EvictControl{Auth: tpm2.TPMRHOwner, ObjectHandle: tpm2.NamedHandle{Handle: made.ObjectHandle, Name: made.Name}, PersistentHandle: handle}).Execute(device)
	if err == nil {
		_, err = tpm2.FlushContext{FlushHandle: made.ObjectHandle}.Execute(device)
	}
	if err != nil {
		t.Fatal(err)
	}
	public := testkit.Must(tpm.AKPublic(t.Context(), device, tpm.AKSource{Handle: handle}, secret.Value[[]byte]{}))
	key := testkit.Must(public.Key())
	cert := testkit.Must(device.CA().IssueAK(key, tpmsim.CertificateOptions{}))
	return tpmcert.CertificatesDER([]*x509.Certificate{cert, device.CA().AKIntermediate()})
}

func TestTPMAbsent(t *testing.T) {
	_, err := (&TPM{Path: filepath.Join(t.TempDir(), "none")}).Open(t.Context())
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestNoRoom fills a TPM behind a socket with what programs that were killed leave there.
func TestNoRoom(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	fill := func() {
		for range 3 {
			_ = testkit.Must((tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}).Execute(device))
		}
	}
	fill()
	a, _ := tpmNode(t, newFakeAPI(t), device, func(k *TPM) { k.Device, k.Path = nil, strings.TrimPrefix(device.TCTI(), "swtpm:path=") })
	obtained(t, a)
	checkFlushed(t, device)
	fill()
	evidence := testkit.Must(a.config.Kind.Open(t.Context()))
	key, err := evidence.(keyKeeper).CreateKey(t.Context())
	if err := errors.Join(err, key.Close(), evidence.Close()); err != nil {
		t.Error(err)
	}

	fill() // of a device that others use too it is not ours to flush
	b, counted := tpmNode(t, newFakeAPI(t), device, nil)
	if _, err := b.snapshot(caller{plugin: true}).requestAnyVersion(t.Context(), nil, b.slots[0]); !errors.Is(err, tpm2.TPMRCObjectMemory) || !errors.Is(err, refusal.ErrRetry) ||
		!strings.Contains(err.Error(), "/dev/tpmrm0") || tpmlab.Count(counted, tpm2.TPMCCFlushContext) != 0 {
		t.Errorf("got %v after %d commands", err, counted.Count())
	}
}

// TestNoRoomForSessions fills a TPM behind a socket with saved sessions.
func TestNoRoomForSessions(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	for full := false; !full; {
		session, _, err := tpm2.HMACSession(device, tpm2.TPMAlgSHA256, 16)
		if full = tpmcapability.NoRoom(err); full {
			break
		}
		if err == nil {
			_, err = tpm2.ContextSave{SaveHandle: session.Handle()}.Execute(device)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	a, _ := tpmNode(t, newFakeAPI(t), device, func(k *TPM) { k.Device, k.Path = nil, strings.TrimPrefix(device.TCTI(), "swtpm:path=") })
	obtained(t, a)
}

// TestResetDuringAnAttempt resets the TPM in the middle of an answer: the attempt fails as one that
// may succeed later, and the next one does.
func TestResetDuringAnAttempt(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	a, counted := tpmNode(t, newFakeAPI(t), device, nil)
	counted.SetFaults(tpmsim.Every(tpm2.TPMCCActivateCredential, tpmsim.Fault{Before: func() {
		if err := device.Reset(); err != nil {
			t.Error(err)
		}
	}}))
	if _, err := a.snapshot(caller{plugin: true}).requestAnyVersion(t.Context(), nil, a.slots[0]); !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %v", err)
	}
	counted.SetFaults(nil)
	if _, err := a.snapshot(caller{plugin: true}).requestAnyVersion(t.Context(), nil, a.slots[0]); err != nil {
		t.Error(err)
	}
	checkFlushed(t, device)
}

// TestAttemptPanics has the TPM's transport and then the clock panic in an attempt: each is an attempt
// that failed, the next one succeeds, and nothing stays locked or loaded.
func TestAttemptPanics(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	a, counted := tpmNode(t, newFakeAPI(t), device, nil)
	attempt := func() error {
		l := testkit.Must(a.store.Lock(t.Context()))
		_, err := a.renew(t.Context(), l, a.slots[0], caller{plugin: true})
		return err
	}
	counted.SetFaults(tpmsim.Every(tpm2.TPMCCActivateCredential, tpmsim.Fault{Before: func() { panic("a bug of the transport") }}))
	if err := attempt(); err == nil || a.readState()[ClientFile].Error == "" {
		t.Errorf("got %v, and in the state %q", err, a.readState()[ClientFile].Error)
	}
	counted.SetFaults(nil)
	now := a.config.Now
	a.config.Now = func() time.Time { panic("a bug of the clock") }
	if err := attempt(); err == nil {
		t.Error("no error")
	}
	a.config.Now = now
	if err := attempt(); err != nil {
		t.Error(err)
	}
	checkFlushed(t, device)
}

// TestPersistentEKLater: a TPM that cannot say now whether the persistent key is the EK is asked
// again, and one that does not list its handles is used without.
func TestPersistentEKLater(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	a, counted := tpmNode(t, newFakeAPI(t), device, nil)
	evidence := testkit.Must(a.config.Kind.Open(t.Context()))
	hello := func() error {
		return evidence.Use(t.Context(), attest.StageHello, func(attest.Session) error { return nil })
	}
	counted.SetFaults(tpmsim.FailEvery(tpm2.TPMCCReadPublic, tpm2.TPMRCUpgrade))
	if err := hello(); !errors.Is(err, refusal.ErrRetry) || evidence.(*tpmEvidence).missed.Load() {
		t.Errorf("got %v, missed: %t", err, evidence.(*tpmEvidence).missed.Load())
	}
	counted.SetFaults(nil)
	if err := hello(); err != nil || tpmlab.Count(counted, tpm2.TPMCCCreatePrimary) != 1 { // the AK
		t.Errorf("later: %v after %v", err, counted.Commands())
	}
	counted.SetFaults(tpmsim.AnswerAt(1, tpm2.TPMRCValue|0x2c0))
	silent := testkit.Must(a.config.Kind.Open(t.Context()))
	if silent.(*tpmEvidence).persistent != nil || tpmlab.Count(counted, tpm2.TPMCCGetCapability) != 1 {
		t.Errorf("a key that the TPM does not list: %v", counted.Commands())
	}
	if err := errors.Join(silent.Close(), evidence.Close()); err != nil {
		t.Error(err)
	}
}
