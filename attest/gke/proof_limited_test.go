package gke

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

type limitedVerifier func() (*LimitedProof, error)

func (v limitedVerifier) VerifyTimeLimited(context.Context, *LimitedSubject, *csr.Request) (*LimitedProof, error) {
	return v()
}

func TestCheckTimeLimited(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	subject := &LimitedSubject{Machine: "aws:1/i-1", NodeName: "node-1", SignerName: "s", RequestHash: [message.HashSize]byte{1}}
	broken := errors.New("no answer")
	for name, c := range map[string]struct {
		change func(p *LimitedProof, o *LimitedOptions)
		want   error
	}{
		"good":         {func(*LimitedProof, *LimitedOptions) {}, nil},
		"last moment":  {func(p *LimitedProof, _ *LimitedOptions) { p.IssuedAt, p.NotAfter = at.Add(-message.DefaultWindow), at }, nil},
		"past the end": {func(p *LimitedProof, _ *LimitedOptions) { p.NotAfter = at.Add(-1) }, CheckLimitedExpired},
		"clock behind": {func(p *LimitedProof, _ *LimitedOptions) { p.IssuedAt = at.Add(limitedSkew) }, nil},
		"from the future": {func(p *LimitedProof, _ *LimitedOptions) {
			p.IssuedAt, p.NotAfter = at.Add(limitedSkew+1), at.Add(2*limitedSkew)
		}, CheckLimitedEarly},
		"too long": {func(p *LimitedProof, _ *LimitedOptions) { p.NotAfter = p.IssuedAt.Add(message.DefaultWindow + 1) }, CheckLimitedWindow},
		"longer, allowed": {func(p *LimitedProof, o *LimitedOptions) {
			p.NotAfter, o.MaxWindow = p.IssuedAt.Add(message.MaxWindow), message.MaxWindow
		}, nil},
		"ends before it begins": {func(p *LimitedProof, _ *LimitedOptions) { p.NotAfter = p.IssuedAt.Add(-1) }, CheckLimitedWindow},
		"no beginning":          {func(p *LimitedProof, _ *LimitedOptions) { p.IssuedAt = time.Time{} }, CheckLimitedWindow},
		"no end":                {func(p *LimitedProof, _ *LimitedOptions) { p.NotAfter = time.Time{} }, CheckLimitedWindow},
		"another machine":       {func(p *LimitedProof, _ *LimitedOptions) { p.Machine = "aws:1/i-2" }, CheckLimitedMachine},
		"no machine":            {func(p *LimitedProof, _ *LimitedOptions) { p.Machine = "" }, CheckLimitedMachine},
		"another request":       {func(p *LimitedProof, _ *LimitedOptions) { p.RequestHash[1] = 1 }, CheckLimitedRequest},
		"no request":            {func(p *LimitedProof, _ *LimitedOptions) { p.RequestHash = [message.HashSize]byte{} }, CheckLimitedRequest},
		"no request, allowed": {func(p *LimitedProof, o *LimitedOptions) {
			p.RequestHash, o.InsecureAllowAnyRequest = [message.HashSize]byte{}, true
		}, nil},
		"other request, allowed": {func(p *LimitedProof, o *LimitedOptions) { p.RequestHash[1], o.InsecureAllowAnyRequest = 1, true }, CheckLimitedRequest},
	} {
		t.Run(name, func(t *testing.T) {
			p := &LimitedProof{Machine: subject.Machine, RequestHash: subject.RequestHash, IssuedAt: at.Add(-time.Minute), NotAfter: at.Add(time.Minute)}
			o := LimitedOptions{Now: func() time.Time { return at }}
			c.change(p, &o)
			got, err := CheckTimeLimited(context.Background(), limitedVerifier(func() (*LimitedProof, error) { return p, nil }), subject, &csr.Request{}, o)
			if !errors.Is(err, c.want) || (c.want == nil) != (got == p) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		})
	}
	for name, c := range map[string]struct {
		v       TimeLimitedVerifier
		subject *LimitedSubject
		opts    LimitedOptions
		want    error
	}{
		"no proof":    {limitedVerifier(func() (*LimitedProof, error) { return nil, nil }), subject, LimitedOptions{}, CheckLimitedMissing},
		"an error":    {limitedVerifier(func() (*LimitedProof, error) { return nil, broken }), subject, LimitedOptions{}, broken},
		"no verifier": {nil, subject, LimitedOptions{}, nil},
		"no subject":  {limitedVerifier(nil), nil, LimitedOptions{}, nil},
		"no machine":  {limitedVerifier(nil), &LimitedSubject{RequestHash: subject.RequestHash}, LimitedOptions{}, nil},
		"no hash":     {limitedVerifier(nil), &LimitedSubject{Machine: "a:b"}, LimitedOptions{}, nil},
		"window":      {limitedVerifier(nil), subject, LimitedOptions{MaxWindow: message.MaxWindow + 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := CheckTimeLimited(context.Background(), c.v, c.subject, &csr.Request{}, c.opts)
			if got != nil || err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
		})
	}
}

func TestInputsOfTimeLimitedProofs(t *testing.T) {
	subject := &LimitedSubject{Machine: "aws:1/i-1", RequestHash: [message.HashSize]byte{1}}
	asked := false
	v := limitedVerifier(func() (*LimitedProof, error) {
		asked = true
		return &LimitedProof{Machine: subject.Machine, RequestHash: subject.RequestHash}, nil
	})
	for name, run := range map[string]func() error{
		"no verifier": func() error {
			_, err := CheckTimeLimited(t.Context(), nil, subject, &csr.Request{}, LimitedOptions{})
			return err
		},
		"no subject": func() error {
			_, err := CheckTimeLimited(t.Context(), v, nil, &csr.Request{}, LimitedOptions{})
			return err
		},
		"no request": func() error { _, err := CheckTimeLimited(t.Context(), v, subject, nil, LimitedOptions{}); return err },
		"a window of -1 ns": func() error {
			_, err := CheckTimeLimited(t.Context(), v, subject, &csr.Request{}, LimitedOptions{MaxWindow: -1})
			return err
		},
		"a window over the largest": func() error {
			_, err := CheckTimeLimited(t.Context(), v, subject, &csr.Request{}, LimitedOptions{MaxWindow: message.MaxWindow + 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(); err == nil || asked {
				t.Errorf("%s: %v, asked: %v", name, err, asked)
			}
		})
	}
	_, err := CheckTimeLimited(t.Context(), v, subject, &csr.Request{}, LimitedOptions{})
	expectCheck(t, err, CheckLimitedWindow) // no time at all
}
