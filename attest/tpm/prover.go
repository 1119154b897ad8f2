package tpm

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// ProverOptions are the optional inputs of [NewProver].
type ProverOptions struct {
	// EK, if set, has the node take [attest.RoadEK], with this endorsement key; nil means
	// [attest.RoadAK]. With EK, the certificates are the EK's: without any, if EK.CertificateIndex
	// is 0 or the TPM has no such index, the node presents the bare key, as of a virtual TPM: the
	// control plane has to list it.
	EK *EKOrigin
	// Certificates is the certificate of the AK, or of the EK, and those between it and the
	// root, in DER, leaf first; a root at the end is left out. If nil, the leaf is read from
	// the CertificateIndex of the AK's or the EK's source.
	Certificates [][]byte
	// Intermediates are the certificates between a leaf read from NV and the root, in DER.
	Intermediates [][]byte
	// EKChainFromNV, instead of Intermediates, has the node send the certificates that its
	// TPM keeps between the EK certificate and the root, in the NV indexes 0x01C00100 to
	// 0x01C001FF (TCG EK Credential Profile 2.6, 2.2.1.5; Intel's parts with an on-die CA),
	// ordered and without the root. They are read for each message. If the TPM keeps nothing
	// there, only the leaf is sent; if it keeps something other than certificates there, that
	// is an error, which is why this is not the default.
	EKChainFromNV bool
	// EndorsementPassword is the password of the endorsement hierarchy; zero means the empty
	// one. [EndorsementPassword] creates and keeps one.
	EndorsementPassword secret.Value[[]byte]
	// AKPassword is the password of a persistent AK, as set by some machine manufacturers: 1
	// to 32 bytes without a zero byte. A wrong one is [tpmkey.ErrPassword], and counts
	// towards the TPM's lockout unless the key has the attribute noDA. Zero means the empty
	// one. It is only for [attest.RoadAK].
	AKPassword secret.Value[[]byte]
	// Quote, if set, makes every answer carry a quote over these PCRs, so that the control plane
	// knows the machine's boot: [DefaultPCRs], or others. SHA-1 banks are refused.
	Quote []statement.PCRSelection
	// EventLog, if set, reads the firmware's event log for every answer, at most
	// [statement.MaxEventLogSize] bytes; on Linux that is the file
	// /sys/kernel/security/tpm0/binary_bios_measurements. It requires Quote. A log that is
	// empty, all zeros or longer is [refusal.CheckConfig].
	EventLog func(ctx context.Context) ([]byte, error)
}

// Prover is the TPM's evidence on the node's side, an [attest.Prover]. It keeps nothing
// loaded in the TPM between messages and is safe for concurrent use by multiple goroutines.
type Prover struct {
	tpm     *tpmop.Shared
	source  AKSource
	options ProverOptions
}

// NewProver returns a Prover for a TPM, with the attestation key of source. It sends no
// commands yet. Other users of the same TPM in this process go through [tpmkey.Share]. The
// error matches [refusal.CheckConfig].
func NewProver(tpm transport.TPM, source AKSource, opts ProverOptions) (*Prover, error) {
	if tpm == nil {
		return nil, refusal.Config("TPM", "", "one")
	}
	if err := opts.check(&source); err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "unusable options", Err: err}
	}
	opts.Certificates, opts.Intermediates = clonedBytes(opts.Certificates), clonedBytes(opts.Intermediates)
	if f := source.File; f != nil {
		source.File = &tpmkey.File{Parent: f.Parent, Public: bytes.Clone(f.Public), Private: bytes.Clone(f.Private)}
	}
	opts.Quote = slices.Clone(opts.Quote)
	for n, s := range opts.Quote {
		opts.Quote[n].Select = bytes.Clone(s.Select)
	}
	opts.EndorsementPassword = secret.New(bytes.Clone(opts.EndorsementPassword.Reveal()))
	opts.AKPassword = secret.New(bytes.Clone(opts.AKPassword.Reveal()))
	if opts.EK != nil {
		opts.EK = new(*opts.EK)
	}
	return &Prover{tpm: tpmop.Share(tpm), source: source, options: opts}, nil
}

func clonedBytes(list [][]byte) [][]byte {
	all := slices.Clone(list)
	for n := range all {
		all[n] = bytes.Clone(all[n])
	}
	return all
}

func (o *ProverOptions) check(ak *AKSource) error {
	if err := ak.check(); err != nil {
		return err
	}
	if ek := o.EK; ek != nil {
		if err := checkSource("endorsement key", ek.Handle, ek.Template != nil || ek.TemplateIndex != 0); err != nil {
			return err
		}
	}
	switch {
	case o.EK != nil && (ak.OEM || len(o.AKPassword.Reveal()) > 0):
		return errors.New("EK with OEM or AKPassword: such a key takes the road of its certificate")
	case o.EK == nil && len(o.Certificates) == 0 && ak.CertificateIndex == 0 && !ak.OEM:
		return errors.New("no AK certificate and no NV index of one")
	case len(o.Certificates) > 0 && len(o.Intermediates) > 0:
		return errors.New("both Certificates, which holds the whole chain, and Intermediates, which are for a certificate from NV")
	case o.EKChainFromNV && (o.EK == nil || o.EK.CertificateIndex == 0):
		return errors.New("EKChainFromNV without an EK certificate in NV")
	case o.EKChainFromNV && (len(o.Certificates) > 0 || len(o.Intermediates) > 0):
		return errors.New("EKChainFromNV with Certificates or Intermediates")
	case o.Quote == nil && o.EventLog != nil:
		return errors.New("EventLog without Quote: nothing would vouch for the log")
	}
	if _, err := statement.SelectedPCRs(o.Quote, false); o.Quote != nil && err != nil {
		return fmt.Errorf("option Quote: %w", err)
	}
	return nil
}

// AKPublic returns the public area of the attestation key of source in tpm, for the CA that is to
// certify it. endorsementPassword is that of the hierarchy; zero means the empty one. A key
// that no verifier would accept is an error.
func AKPublic(ctx context.Context, tpm transport.TPM, source AKSource, endorsementPassword secret.Value[[]byte]) (*statement.Public, error) {
	var ak *tpmop.LoadedKey
	err := tpmop.Share(tpm).Do(ctx, func(h *tpmop.Handles) (err error) {
		ak, err = loadAK(ctx, h, &source, nil, endorsementPassword.Reveal())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tpm: AK: %w", err)
	}
	return ak.Public, nil
}

// Provider returns "tpm".
func (p *Prover) Provider() string { return Provider }

// Version returns 1, the version of the data format.
func (p *Prover) Version() int { return formatVersion }

// Close flushes the objects that an earlier operation left in the TPM because flushing failed.
// Closing the TPM remains up to the caller.
func (p *Prover) Close() error { return cmp.Or(p, new(Prover)).tpm.FlushLeft(context.Background()) }

// Use loads the AK, and on [attest.RoadEK] the EK, for one message. The event log is read before
// the TPM is taken. Every handle is flushed on every path. The error matches [refusal.ErrRetry] if
// the TPM is full, locked or was reset meanwhile.
func (p *Prover) Use(ctx context.Context, stage attest.Stage, f func(attest.Session) error) error {
	p = cmp.Or(p, new(Prover))
	s := &session{prover: p}
	if stage == attest.StageAnswer && p.options.EventLog != nil {
		log, err := p.options.EventLog(ctx)
		if err != nil {
			return fmt.Errorf("event log: %w", err)
		}
		if s.eventLog, err = eventLogStatement(log); err != nil {
			return err
		}
	}
	return p.tpm.Do(ctx, func(h *tpmop.Handles) error {
		s.handles = h
		if err := s.load(ctx); err != nil {
			return err
		}
		return f(s)
	})
}

// eventLogStatement refuses bytes that are not a firmware's log, before any command to the TPM.
func eventLogStatement(log []byte) ([]byte, error) {
	const none = "a log that the firmware wrote; it gives this system none, as on many of Azure's virtual machines:" +
		" without EventLog this machine can join only where the control plane demands no log"
	switch {
	case len(log) == 0:
		return nil, refusal.Config("EventLog", "that is empty", none)
	case len(log) > statement.MaxEventLogSize:
		return nil, refusal.Config("EventLog", fmt.Sprintf("of %d bytes", len(log)),
			fmt.Sprintf("at most %d bytes; a firmware's log has fewer, so look at what is read for it", statement.MaxEventLogSize))
	case len(bytes.Trim(log, "\x00")) == 0:
		return nil, refusal.Config("EventLog", fmt.Sprintf("of %d bytes that are all zero", len(log)), none)
	}
	return statement.MarshalEventLog(log)
}

// session holds the keys for one message, and their certificates.
type session struct {
	prover   *Prover
	handles  *tpmop.Handles
	eventLog []byte // the statement, nil for none

	road       attest.Road
	ak         *tpmop.LoadedKey
	ek         *tpmop.LoadedKey // nil on road AK
	machineKey []byte           // the canonical SubjectPublicKeyInfo of the key that carries the trust
	// chain is the certificates of the AK, or on road EK of the EK, leaf first and without
	// the root; ekPublic is the EK's SubjectPublicKeyInfo if it has no certificate.
	chain    [][]byte
	ekPublic []byte
}

// load reads the certificates, and loads the AK and, on road EK, the EK.
func (s *session) load(ctx context.Context) (err error) {
	o := &s.prover.options
	if s.chain, err = s.readChain(ctx); err != nil {
		return err
	}
	if s.ak, err = loadAK(ctx, s.handles, &s.prover.source, s.chain, o.EndorsementPassword.Reveal()); err != nil {
		return err
	}
	if tpmop.CheckPersistent(s.ak.Handle) == nil {
		s.ak.Password = o.AKPassword
	}
	carrier := s.ak
	if o.EK != nil {
		if s.ek, err = loadEK(ctx, s.handles, o.EK, o.EndorsementPassword.Reveal()); err != nil {
			return err
		}
		s.road, carrier = attest.RoadEK, s.ek
	}
	public, err := carrier.Public.Key()
	if err != nil {
		return err
	}
	if s.machineKey, err = csr.CanonicalSPKI(public); err != nil {
		return err
	}
	if s.road == attest.RoadAK {
		return nil
	}
	if len(s.chain) == 0 {
		s.ekPublic = s.machineKey
		return nil
	}
	ek, err := tpmcert.ParseEK(s.chain[0])
	if err != nil {
		return fmt.Errorf("EK certificate: %w", err)
	}
	if !carrier.Public.SameKey(ek.PublicKey) {
		return errors.New("the EK certificate is for another key than the EK in this TPM")
	}
	return nil
}

// readChain returns the certificates of the AK, or of the EK, leaf first and without the
// root; none for an EK that has none.
func (s *session) readChain(ctx context.Context) (chain [][]byte, err error) {
	o := &s.prover.options
	chain, above := o.Certificates, o.Intermediates
	switch {
	case len(chain) != 0:
		above = nil
	case s.prover.source.OEM:
		if chain, err = readIAKChain(ctx, s.handles); above != nil && err == nil {
			chain = chain[:1]
		}
	case o.EK != nil:
		if chain, err = readEKChain(ctx, s.handles, o); len(chain) != 1 {
			above = nil
		}
	default:
		chain = make([][]byte, 1)
		chain[0], err = tpmop.ReadNVCertificate(ctx, s.handles, s.prover.source.CertificateIndex)
	}
	if err != nil {
		return nil, err
	}
	chain = slices.Concat(chain, above)
	if last := len(chain) - 1; last > 0 && isRoot(chain[last]) {
		return chain[:last], nil
	}
	return chain, nil
}

// readEKChain returns the certificate of the EK in NV, and with EKChainFromNV those above it. An EK
// whose index does not exist has none: the control plane trusts it if it is on its list. What
// exists and cannot be read is an error.
func readEKChain(ctx context.Context, h *tpmop.Handles, o *ProverOptions) ([][]byte, error) {
	index := o.EK.CertificateIndex
	if index == 0 {
		return nil, nil
	}
	leaf, err := tpmop.ReadNVCertificate(ctx, h, index)
	if errors.Is(err, tpmop.ErrNVIndexNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("certificate of the EK: %w", err)
	}
	if !o.EKChainFromNV {
		return [][]byte{leaf}, nil
	}
	above, err := ekChainOf(ctx, h, leaf)
	return slices.Concat([][]byte{leaf}, above), err
}

func isRoot(der []byte) bool {
	c, err := x509.ParseCertificate(der)
	return err == nil && dn.SelfIssued(c)
}

func (s *session) Present() (*attest.Presented, error) {
	p := &attest.Presented{Road: s.road, MachineKey: s.machineKey}
	if s.road == attest.RoadEK {
		p.AKName = s.ak.Name
	}
	return p, nil
}

func (s *session) Hello(_ context.Context, h attest.Head) (*attest.Evidence, error) {
	m := &message.Hello{Road: message.Road(s.road), ClusterID: h.ClusterID, TargetSigner: h.TargetSigner,
		EKPublic: s.ekPublic, AKPublic: s.ak.Public.Raw}
	statement, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	return &attest.Evidence{Statements: []attest.Statement{{Type: oid.NodeAttestHello, DER: statement}}, Certificates: s.chain}, nil
}

// Open has the TPM open a credential for this EK and this AK (TPM2_ActivateCredential), and
// returns the check "tpm-credential" for any other. The EK, no longer needed, makes room for the key to
// certify.
func (s *session) Open(ctx context.Context, c *attest.Credential) ([]byte, error) {
	if s.ek == nil {
		return nil, fmt.Errorf("%w: this node takes the road of its AK's certificate", checkCredential)
	}
	secret, err := activate(ctx, s.handles, s.ak, s.ek, s.prover.options.EndorsementPassword.Reveal(), c)
	if err != nil {
		return nil, err
	}
	if len(secret) != message.SecretSize {
		return nil, fmt.Errorf("%w: it holds %d bytes, want %d", checkCredential, len(secret), message.SecretSize)
	}
	return secret, s.handles.Flush(s.ek.Handle)
}

// Answer has the AK certify the key, and quote the PCRs if there are any to quote.
func (s *session) Answer(ctx context.Context, signer crypto.Signer, c *attest.Challenged) (*attest.Evidence, error) {
	key, err := tpmkey.KeyOf(signer)
	if err != nil {
		return nil, err
	}
	made, err := certify(ctx, s.handles, s.ak, key, c.QualifyingData(labelCertify))
	if err != nil {
		return nil, err
	}
	stated, err := statement.MarshalTCGAttestCertify(made)
	if err != nil {
		return nil, err
	}
	proof, err := (&message.Proof{Binding: c.Binding(), EKPublic: s.ekPublic, AKPublic: s.ak.Public.Raw}).Marshal()
	if err != nil {
		return nil, err
	}
	statements := []attest.Statement{{Type: oid.TCGAttestTPMCertify, DER: stated}, {Type: oid.NodeAttestProof, DER: proof}}
	e := &attest.Evidence{Statements: statements, Certificates: s.chain}
	if s.prover.options.Quote == nil {
		return e, nil
	}
	q, err := quote(ctx, s.handles, s.ak, s.prover.options.Quote, c.QualifyingData(labelQuote))
	if err != nil {
		return nil, fmt.Errorf("quote: %w", err)
	}
	if stated, err = statement.MarshalQuote(q); err != nil {
		return nil, err
	}
	e.Statements = append(e.Statements, attest.Statement{Type: oid.NodeAttestQuote, DER: stated})
	if s.eventLog != nil {
		e.Statements = append(e.Statements, attest.Statement{Type: oid.NodeAttestEventLog, DER: s.eventLog})
	}
	return e, nil
}
