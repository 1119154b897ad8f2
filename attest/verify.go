package attest

import (
	"bytes"
	"context"
	"crypto"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of the binding. The node makes the first group too, against its own
// values.
const (
	// CheckBindingRoad: the binding is for another road, or for one that is not
	// configured.
	CheckBindingRoad Check = "binding-road"
	// CheckBindingCluster: it is for another cluster.
	CheckBindingCluster Check = "binding-cluster"
	// CheckBindingSigner: it is for another target signer.
	CheckBindingSigner Check = "binding-signer"
	// CheckBindingRequester: it is for another requester (spec.username).
	CheckBindingRequester Check = "binding-requester"
	// CheckBindingExpiration: it is for another spec.expirationSeconds.
	CheckBindingExpiration Check = "binding-expiration"
	// CheckBindingMachineKey: it is for another machine's key.
	CheckBindingMachineKey Check = "binding-machine-key"
	// CheckBindingAKName: it is for another AK.
	CheckBindingAKName Check = "binding-ak-name"
	// CheckBindingRequest: it is for another certificate request.
	CheckBindingRequest Check = "binding-request"
	// CheckBindingBytes: the echoed binding differs from the rebuilt one, though
	// no field does.
	CheckBindingBytes Check = "binding-bytes"
	// CheckBindingWindow: notAfter is before issuedAt or more than [MaxWindow]
	// behind it.
	CheckBindingWindow Check = "binding-window"

	// CheckAnswerEarly: the answer was created more than 60 s before its
	// challenge.
	CheckAnswerEarly Check = "answer-early"
	// CheckAnswerLate: the answer was created after the challenge's window.
	CheckAnswerLate Check = "answer-late"
	// CheckAnswerOld: the answer was created more than [MaxAnswerAge] ago.
	CheckAnswerOld Check = "answer-old"
)

// Verify checks an answer and returns what it proves. The answer alone is
// needed: hello and challenge are not kept. The checks run in this order, cheap
// ones first, and the first that fails is the error: size and encoding, node
// policy, the rebuilt binding, its times and key, the statement and its
// qualifying data, the request's own signature, the AK's signature over the
// statement, and over the quote where there is one, the AK certificate under its
// issuer's profile or the EK ([EKVerifier]), the policy over quotes, membership.
//
// A refusal is an [*Error] or a [csr.Errors]; what could not be decided
// wraps [csr.ErrRetry]. [csr.Decide] turns the error into a decision. The
// certificate is issued with [Result.Checked] and [Result.Verified].
//
// An answer that is filed again inside its window verifies again: it is for the
// same key and the same request, so nobody gains by it, and no list of used
// challenges is kept.
func (v *Verifier) Verify(ctx context.Context, request *csr.Request) (*Result, error) {
	return v.verify(ctx, request.Parsed())
}

func (v *Verifier) verify(ctx context.Context, parsed *csr.Parsed) (*Result, error) {
	request := parsed.Request()
	if request == nil || v == nil || v.now == nil {
		return nil, errNotMade
	}
	now, w := v.now(), v.newWork(MaxAnswerSignatures)
	checked, err := v.policy.CheckUnsigned(ctx, parsed, request.Spec.SignerName)
	if err != nil {
		return nil, err
	}
	a, err := readAnswer(checked.Bundle())
	if err != nil {
		return nil, err
	}
	node, err := readNode(a.binding.Road, a.proof.AKPublic, a.proof.EKPublic, a.certificates)
	if err != nil {
		return nil, err
	}
	r := v.startResult(StageAnswer, checked, request.Spec.SignerName, node)
	if err := v.checkBinding(a, r, request, now); err != nil {
		return nil, err
	}
	if err := v.checkStatement(ctx, w, a, r, node, now); err != nil {
		return nil, err
	}
	if err := v.trust(ctx, w, node, r, now); err != nil {
		return nil, err
	}
	if err := checkProfileOfStatement(r); err != nil {
		return nil, err
	}
	if r.Road == RoadEK && r.Clock.Plain {
		if err := v.eks.checkFirmware(r.Directory, r.Clock.FirmwareVersion); err != nil {
			return nil, err
		}
	}
	if err := v.checkMeasured(ctx, r); err != nil {
		return nil, err
	}
	if err := v.authorize(ctx, r, request); err != nil {
		return nil, err
	}
	return r, nil
}

// answer is the evidence of an answer, read but not checked.
type answer struct {
	certify      *CertifyEvidence
	proof        *Proof
	binding      *Binding
	certificates [][]byte
	quote        *QuoteEvidence // nil where there is none
	eventLog     []byte         // likewise
}

// readAnswer reads an answer: certify, then proof, then optionally a quote and with it
// an event log, and nothing else.
func readAnswer(bundle *csr.Bundle) (*answer, error) {
	evidence, err := readEvidence(bundle)
	if err != nil {
		return nil, err
	}
	s := evidence.Statements
	if !isAnswer(s) {
		return nil, &Error{Check: CheckStatements, Got: statementTypes(evidence), Want: "certify and proof, then quote and event log if any"}
	}
	a := &answer{certificates: evidence.Certificates}
	if a.certify, err = ParseTCGAttestCertify(s[0].Stmt); err != nil {
		return nil, err
	}
	if a.certify.Public == nil {
		return nil, fault("certify", "tpmTPublic", "the certified key's TPMT_PUBLIC")
	}
	if a.proof, a.binding, err = parseProof(s[1].Stmt); err != nil {
		return nil, err
	}
	if err := a.readMeasured(s[2:]); err != nil {
		return nil, err
	}
	return a, nil
}

// checkBinding rebuilds the binding from what the verifier knows itself, and
// compares it with the echo.
func (v *Verifier) checkBinding(a *answer, r *Result, request *csr.Request, now time.Time) error {
	echo := a.binding
	if err := v.checkRoadAndCluster(echo.Road, echo.ClusterID); err != nil {
		return err
	}
	want := v.expected(r, request, echo.ClusterID)
	want.KeyID, want.Nonce, want.IssuedAt, want.NotAfter = echo.KeyID, echo.Nonce, echo.IssuedAt, echo.NotAfter
	if err := compareBindings(echo, want); err != nil {
		return err
	}
	der, err := want.Marshal()
	if err != nil {
		return err
	}
	if !bytes.Equal(der, a.proof.Binding) {
		return &Error{Check: CheckBindingBytes, Got: "another encoding", Want: "the DER of the binding"}
	}
	if err := checkTimes(echo, request, now); err != nil {
		return err
	}
	r.IssuedAt, r.NotAfter = echo.Issued(), echo.Expires()
	return nil
}

// compareBindings names the first field that differs, of those that both sides
// know by themselves. The requester is the verifier's alone.
func compareBindings(got, want *Binding) error {
	if err := compareOwnValues(got, want); err != nil {
		return err
	}
	if got.Requester != want.Requester {
		return &Error{Check: CheckBindingRequester, Got: got.Requester, Want: refusal.OrNothing(want.Requester)}
	}
	return nil
}

// compareOwnValues is the part of compareBindings that the node makes too.
func compareOwnValues(got, want *Binding) error {
	switch {
	case got.Road != want.Road:
		return &Error{Check: CheckBindingRoad, Got: got.Road.String(), Want: want.Road.String()}
	case got.ClusterID != want.ClusterID:
		return &Error{Check: CheckBindingCluster, Got: got.ClusterID, Want: want.ClusterID}
	case got.SignerName != want.SignerName:
		return &Error{Check: CheckBindingSigner, Got: got.SignerName, Want: want.SignerName}
	case got.ExpirationSeconds != want.ExpirationSeconds:
		return &Error{Check: CheckBindingExpiration, Got: strconv.Itoa(int(got.ExpirationSeconds)), Want: strconv.Itoa(int(want.ExpirationSeconds))}
	case got.MachineKey != want.MachineKey:
		return &Error{Check: CheckBindingMachineKey, Got: hex.EncodeToString(got.MachineKey[:]), Want: hex.EncodeToString(want.MachineKey[:])}
	case !bytes.Equal(got.AKName, want.AKName):
		return &Error{Check: CheckBindingAKName, Got: hex.EncodeToString(got.AKName), Want: refusal.OrNothing(hex.EncodeToString(want.AKName))}
	case got.RequestHash != want.RequestHash:
		return &Error{Check: CheckBindingRequest, Got: hex.EncodeToString(got.RequestHash[:]), Want: hex.EncodeToString(want.RequestHash[:])}
	}
	return nil
}

func checkWindow(b *Binding) error {
	if length := b.NotAfter - b.IssuedAt; length < 0 || length > int64(MaxWindow/time.Second) {
		return &Error{Check: CheckBindingWindow, Got: strconv.FormatInt(length, 10) + " s", Want: "0 to 3600 s"}
	}
	return nil
}

// checkTimes holds the window against the answer's time of creation T:
// issuedAt − 60 s ≤ T ≤ notAfter ≤ issuedAt + 1 h, and now − T ≤ 1 h.
func checkTimes(b *Binding, request *csr.Request, now time.Time) error {
	if err := checkWindow(b); err != nil {
		return err
	}
	created, err := createdAt(request, now)
	if err != nil {
		return err
	}
	at := created.UTC().Format(time.RFC3339)
	switch {
	case created.Before(b.Issued().Add(-clockSkew)):
		return &Error{Check: CheckAnswerEarly, Got: at, Want: "no earlier than 60 s before " + b.Issued().Format(time.RFC3339)}
	case created.After(b.Expires()):
		return &Error{Check: CheckAnswerLate, Got: at, Want: "no later than " + b.Expires().Format(time.RFC3339)}
	case now.Sub(created) > MaxAnswerAge:
		return &Error{Check: CheckAnswerOld, Got: at, Want: "one of the last " + MaxAnswerAge.String()}
	}
	return nil
}

// createdAt is the server-set creation time, or the clock where there is none.
func createdAt(request *csr.Request, now time.Time) (time.Time, error) {
	created := request.Metadata.CreationTimestamp
	if created.IsZero() {
		return now, nil
	}
	if created.After(now) {
		return time.Time{}, &Error{Check: CheckFuture, Got: created.UTC().Format(time.RFC3339Nano),
			Want: "a time before " + now.UTC().Format(time.RFC3339Nano), Err: csr.ErrRetry}
	}
	return created, nil
}

// checkStatement checks the certify statement and the quote: all that costs little
// first, the qualifying data among it, then the request's signature and the AK's.
func (v *Verifier) checkStatement(ctx context.Context, w *work, a *answer, r *Result, node *presentedNode, now time.Time) error {
	key, err := v.ring.lookup(a.binding.KeyID, now)
	if err != nil {
		return err
	}
	secret := challengeSecret(key, a.proof.Binding)
	in := certifyInput{
		ak:             node.akPublic,
		akKey:          node.akKey,
		key:            r.checked.PKCS10().CSR.PublicKey,
		qualifyingData: qualifyingData(secret, labelCertify, a.proof.Binding),
		policy: statementPolicy{
			allowSHA1Signature: v.allowSHA1 && node.road == RoadAK,
			requireTPMResident: v.requireResident || r.Purpose == csr.PurposeRecovery,
		},
	}
	if err := in.parse(a.certify, nil); err != nil {
		return err
	}
	if err := in.checkBeforeSignature(); err != nil {
		return err
	}
	quote, err := v.quoteOf(a, &in, secret)
	if err != nil {
		return err
	}
	if err := w.signature(ctx); err != nil {
		return err
	}
	if err := r.checked.CheckSignature(); err != nil {
		return err
	}
	if err := w.signature(ctx); err != nil {
		return err
	}
	if err := in.checkSignature(); err != nil {
		return err
	}
	r.fillStatement(&in)
	return r.checkQuote(ctx, w, a, quote)
}

// CheckAKParent: the AK is no primary key, and its issuer's profile does not
// admit others; or the public area that was sent is not the AK's own.
const CheckAKParent Check = "ak-parent"

// checkProfileOfStatement asks the profile of the very issuer that certified the
// AK. The statement's checks asked only whether any issuer admits SHA-1. On road EK
// there is none to ask: SHA-1 was refused, and the credential names the AK wherever in
// the TPM it is.
func checkProfileOfStatement(r *Result) error {
	if r.Road == RoadEK {
		return nil
	}
	if r.SignatureHash == crypto.SHA1 && !r.profile.InsecureAllowSHA1Signature {
		return &Error{Check: CheckSignatureHash, Got: "SHA1", Want: "SHA256, SHA384 or SHA512, by profile " + r.Profile}
	}
	if !r.AKPrimary && !r.profile.AllowAKBelowOtherKeys {
		return &Error{Check: CheckAKParent, Got: "a qualified signer that is not the AK as a primary key",
			Want: "one, by profile " + r.Profile}
	}
	return nil
}
