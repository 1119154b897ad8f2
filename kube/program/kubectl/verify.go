package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// What verify comes to, and its exit status.
const (
	admitted  = "admitted"
	refusedBy = "refused"
	undecided = "undecided"

	statusRefused   = exitStatus(1)
	statusUndecided = exitStatus(2)
)

// finding is what verify prints about one request.
type finding struct {
	Request string    `json:"request"` // its name
	Stage   string    `json:"stage"`
	At      time.Time `json:"at"`
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason"`  // as in the condition that the controller writes
	Message string    `json:"message"` // the whole of it
	Note    string    `json:"note,omitempty"`
	// Result is what was found about a machine that is admitted.
	Result *attest.Result `json:"result,omitempty"`
}

// helloNote is said about each hello.
const helloNote = "this decides about the hello only: nothing is proven yet, and no certificate follows"

// verify decides recorded requests as the controller would have, by its configuration, and
// prints a JSON document about each.
func (p *plugin) verify(ctx context.Context, names []string) error {
	findings, err := p.decideFiles(ctx, names)
	if err != nil {
		if errors.Is(err, errUsage) {
			return err
		}
		report(p.err, err)
		return statusUndecided
	}
	var end error
	for _, f := range findings {
		text, err := json.MarshalIndent(f, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(p.out, "%s\n", ascii(text))
		}
		switch {
		case err != nil:
			report(p.err, err)
			return statusUndecided
		case f.Outcome == refusedBy:
			end = statusRefused
		case f.Outcome == undecided && end == nil:
			end = statusUndecided
		}
	}
	return end
}

// ascii returns a JSON text that says the same in ASCII: \u escapes are JSON's, those of other characters
// that do not print are not.
func ascii(text []byte) []byte {
	var b []byte
	for _, r := range string(text) {
		if r < 0x7f {
			b = append(b, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	return b
}

func (p *plugin) decideFiles(ctx context.Context, names []string) ([]*finding, error) {
	if p.config == "" {
		return nil, fmt.Errorf("verify takes --config; %w", errUsage)
	}
	var at time.Time
	var err error
	if p.at != "" {
		if at, err = time.Parse(time.RFC3339, p.at); err != nil {
			return nil, fmt.Errorf("--at: %w; %w", err, errUsage)
		}
	}
	s, err := settings.Read(p.config, p.others...)
	if err != nil {
		return nil, err
	}
	o, err := p.offline(s)
	if err != nil {
		return nil, err
	}
	var findings []*finding
	for _, name := range names {
		requests, err := p.readRequests(name)
		if err != nil {
			return nil, err
		}
		for _, r := range requests {
			when := at
			if when.IsZero() {
				when = r.Metadata.CreationTimestamp.Add(time.Second)
			}
			f, err := o.decide(ctx, r, when)
			if err != nil {
				return nil, err
			}
			findings = append(findings, f)
		}
	}
	return findings, nil
}

// readRequests reads a request object, or a list of them, in JSON or YAML.
func (p *plugin) readRequests(name string) ([]*csr.Request, error) {
	items, err := p.readObjects(name)
	if err != nil {
		return nil, err
	}
	var all []*csr.Request
	for _, item := range items {
		r, err := csr.ParseServerObject(item)
		if err == nil && len(r.Spec.Request) == 0 {
			err = errors.New("no spec.request: this is no CertificateSigningRequest")
		}
		if err == nil && r.Metadata.CreationTimestamp.IsZero() && p.at == "" {
			err = errors.New("no metadata.creationTimestamp: give --at")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// maxObjects is the maximum size of a file of objects, in bytes: room for the records of a
// large cluster.
const maxObjects = 64 << 20

// readObjects reads an object, or the items of a list, in JSON or YAML, as JSON.
func (p *plugin) readObjects(name string) ([]json.RawMessage, error) {
	text, err := p.read(name, maxObjects)
	if err != nil {
		return nil, err
	}
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if text, err = configfile.JSON(text); err == nil {
		err = json.Unmarshal(text, &list)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case strings.HasSuffix(list.Kind, "List"):
		return list.Items, nil
	}
	return []json.RawMessage{text}, nil
}

// asFiled is a request as it was before it was decided.
func asFiled(r *csr.Request) *csr.Request {
	filed := *r
	filed.Status, filed.Metadata.DeletionTimestamp = csr.Status{}, nil
	return &filed
}

// decide decides one request as at a time.
func (o *offline) decide(ctx context.Context, recorded *csr.Request, at time.Time) (*finding, error) {
	r := asFiled(recorded)
	f := &finding{Request: r.Metadata.Name, Stage: attest.StageAnswer.String(), At: at.UTC(), Outcome: undecided, Reason: csr.ReasonRetry}
	m, _ := attest.ReadMessage(r.Parsed(), o.kinds...)
	if m.Provider != "" && !slices.ContainsFunc(o.kinds, func(k attest.Kind) bool { return k.Describe().Provider == m.Provider }) {
		f.Message = "evidence of " + m.Provider + ", a kind that this program does not know"
		return f, nil
	}
	hello := slices.ContainsFunc(o.kinds, func(k attest.Kind) bool {
		challenge, err := csr.SignerChallenge(k.Describe().Provider)
		return err == nil && r.Spec.SignerName == challenge
	})
	verifier, err := o.verifier(at, hello)
	if err != nil {
		return nil, err
	}
	if hello {
		f.Stage, f.Note = attest.StageHello.String(), helloNote
		if _, err = verifier.Challenge(ctx, r); err == nil {
			f.Outcome, f.Reason, f.Message = admitted, attest.ReasonChallenge, "it is challenged"
			return f, nil
		}
	} else if attested, refused := csr.Verify(ctx, verifier, r); refused == nil {
		f.Outcome, f.Reason, f.Message = admitted, csr.ReasonApproved, "every check passed"
		f.Result, _ = attested.Details().(*attest.Result)
		return f, nil
	} else {
		err = refused
	}
	d := csr.Decide(err)
	f.Reason, f.Message = d.Reason, cmp.Or(d.Detail, d.Message)
	if d.Verdict == csr.VerdictDeny {
		f.Outcome = refusedBy
	}
	return f, nil
}
