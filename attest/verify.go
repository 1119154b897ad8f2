package attest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// More checks of the binding and its times; the others are exported.
const (
	// checkBindingAKName: it is for another AK.
	checkBindingAKName Check = "binding-ak-name"
	// checkBindingWindow: notAfter is before issuedAt or more than one hour
	// after it.
	checkBindingWindow Check = "binding-window"

	// checkAnswerEarly: the answer was created more than 60 s before its
	// challenge.
	checkAnswerEarly Check = "answer-early"
)

// Verify checks an answer and returns the Result. It needs neither hello nor challenge. The checks run
// in this order, cheap ones first, and the first that fails is the error: size and encoding, node
// policy, the rebuilt binding, its times and key, the kind's statements and the qualifying data that
// they cover, the request's own signature, the signatures of the statements and the trust in the
// machine, membership.
//
// A refusal is an [*Error] or a [csr.Errors]; any other error wraps [refusal.ErrRetry]. [csr.Decide]
// turns the error into a decision. An approval and a certificate are made from [Result.Attested].
//
// An answer that is filed again within its window verifies again: it is for the same key and
// the same request, so a replay gains nothing, and no list of used challenges is kept.
func (v *Verifier) Verify(ctx context.Context, request *csr.Request) (*Result, error) {
	return v.verify(ctx, request.Parsed())
}

func (v *Verifier) verify(ctx context.Context, parsed *csr.Parsed) (*Result, error) {
	kind, err := v.choose(ctx, parsed)
	if err != nil {
		return nil, err
	}
	request, now := parsed.Request(), v.c.Now()
	checked, err := v.c.Policy.CheckUnsigned(ctx, parsed, request.Spec.SignerName)
	if err != nil {
		return nil, err
	}
	answer, version, err := read(kind, checked.Bundle(), kind.ReadAnswer)
	if err != nil {
		return nil, err
	}
	p, err := answer.Present()
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, kind.fault("no machine", "one")
	}
	r, err := v.startResult(StageAnswer, checked, kind, p.Road, p)
	if err != nil {
		return nil, err
	}
	echo, err := v.checkBinding(kind, answer, r, p, request, now)
	if err != nil {
		return nil, err
	}
	q := v.inquiry(r, version, budgetOf(answerSignatures, request), now)
	key, err := v.c.KeyRing.lookup(echo.KeyID, now)
	if err != nil {
		return nil, err
	}
	format, binding := checked.Bundle().Provider, answer.Binding()
	q.challenged = &Challenged{format: format, secret: secret.New(key.challengeSecret(format, binding)), binding: binding}
	q.statements = kind.Statements
	if err := answer.Check(q); err != nil {
		return nil, err
	}
	if err := q.checkSignature(ctx, checked); err != nil {
		return nil, err
	}
	found, err := answer.Verify(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := r.accept(kind, p, q, found); err != nil {
		return nil, err
	}
	if err := AskMembership(ctx, v.c.Authorizer, r); err != nil {
		return nil, err
	}
	return r, nil
}

// checkBinding compares the answer's copy of the Binding with one made of the verifier's own values. A
// Binding has only one encoding, so equal fields are equal bytes. Key, nonce and times are authentic
// once a statement covers the secret that is derived from these bytes.
func (v *Verifier) checkBinding(k *openKind, answer AnswerEvidence, r *Result, p *Presented, request *csr.Request, now time.Time) (*message.Binding, error) {
	echo, err := echoOf(answer)
	if err != nil {
		return nil, err
	}
	if err := v.checkRoadAndCluster(k, Road(echo.Road), echo.ClusterID); err != nil {
		return nil, err
	}
	r.ClusterID = echo.ClusterID
	if err := cmp.Or(compareBindings(*echo, expected(r, p, request)), checkTimes(echo, request, now)); err != nil {
		return nil, err
	}
	r.IssuedAt, r.NotAfter = echo.Issued(), echo.Expires()
	return echo, nil
}

// echoOf returns an answer's copy of the Binding. The kinds in this module have already parsed it.
func echoOf(answer AnswerEvidence) (*message.Binding, error) {
	if read, ok := answer.(interface{ Echo() *message.Binding }); ok {
		return read.Echo(), nil
	}
	return message.ParseBinding(answer.Binding())
}

// compareBindings refuses two Bindings by their first difference.
func compareBindings(got, want message.Binding) error {
	if all := differences(got, want); len(all) > 0 {
		return all[0]
	}
	return nil
}

// differences returns a refusal for each field that differs, without key, nonce and times.
func differences(got, want message.Binding) (all []*Error) {
	all = differ(all, CheckBindingRoad, "%s", got.Road, want.Road)
	all = differ(all, CheckBindingCluster, "%s", got.ClusterID, want.ClusterID)
	all = differ(all, CheckBindingSigner, "%s", got.SignerName, want.SignerName)
	all = differ(all, CheckBindingExpiration, "%d", got.ExpirationSeconds, want.ExpirationSeconds)
	all = differ(all, CheckBindingMachineKey, "%x", got.MachineKey, want.MachineKey)
	if !bytes.Equal(got.AKName, want.AKName) {
		all = differ(all, checkBindingAKName, "%x", string(got.AKName), string(want.AKName))
	}
	all = differ(all, CheckBindingRequest, "%x", got.RequestHash, want.RequestHash)
	return differ(all, CheckBindingRequester, "%s", got.Requester, want.Requester)
}

// differ appends a refusal, with the values in this format, unless they are equal.
func differ[T comparable](all []*Error, check Check, format string, got, want T) []*Error {
	if got == want {
		return all
	}
	wanted := refusal.OrNothing(fmt.Sprintf(format, want))
	return append(all, &Error{Check: check, Got: fmt.Sprintf(format, got), Want: wanted})
}

func checkWindow(b *message.Binding) error {
	if length := b.NotAfter - b.IssuedAt; length < 0 || length > int64(message.MaxWindow/time.Second) {
		return &Error{Check: checkBindingWindow, Got: strconv.FormatInt(length, 10) + " s", Want: "0 to 3600 s"}
	}
	return nil
}

// checkTimes checks the window against the answer's creation time T: issuedAt − 60 s ≤ T ≤
// notAfter ≤ issuedAt + 1 h, and now − T ≤ 1 h.
func checkTimes(b *message.Binding, request *csr.Request, now time.Time) error {
	if err := checkWindow(b); err != nil {
		return err
	}
	created, err := createdAt(request, now)
	if err != nil {
		return err
	}
	switch {
	case created.Before(b.Issued().Add(-clockSkew)):
		return checkAnswerEarly.Refuse(rfc3339(created), "no earlier than 60 s before "+rfc3339(b.Issued()))
	case created.After(b.Expires()):
		return CheckAnswerLate.Refuse(rfc3339(created), "no later than "+rfc3339(b.Expires()))
	case now.Sub(created) > message.MaxAnswerAge:
		return CheckAnswerOld.Refuse(rfc3339(created), "one of the last "+message.MaxAnswerAge.String())
	}
	return nil
}

// createdAt returns the creation time set by the server, or now without one.
func createdAt(request *csr.Request, now time.Time) (time.Time, error) {
	created := request.Metadata.CreationTimestamp
	if created.IsZero() {
		return now, nil
	}
	if created.After(now) {
		return time.Time{}, &Error{Check: checkFuture, Got: created.UTC().Format(time.RFC3339Nano),
			Want: "a time before " + now.UTC().Format(time.RFC3339Nano), Err: refusal.ErrRetry}
	}
	return created, nil
}
