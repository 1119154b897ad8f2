package attesttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// registryClaim is the claim of a machine to a node.
func registryClaim(node, machine string) membership.Claim {
	return membership.Claim{
		NodeName:   "node-" + node,
		Machine:    attest.Identity("test:" + machine),
		MachineUID: "uid-of-node-" + node,
		ProviderID: "test://node-" + node,
	}
}

// registryStep is one step of a check:
//
//	reserve 1 2       node-1 for machine test:2, for a minute
//	join 1 2          the same, and bind
//	bind a 1h         the record that was labelled a, with its last end from now; without
//	                  one with none. None is labelled nil
//	rebind a 2        to test:2
//	adopt a           the UID
//	release 1         node-1
//	name 1            look it up, or by its "machine" or "uid"
//	wait 1m
//	stale a           bind, rebind and adopt, all refused: a is not the record of now
//
// A step that begins with "a=" labels what it returns. "node=", "machine=", "uid=" and
// "pid=" replace what a claim has by itself, "for=" the minute. "cert=1" has bind record the
// certificate 1 of the claim, to the last end or what "ends=" says, "request=1" the request
// that the certificate is for, and "nodeuid=" its Node UID. "!name" says that the step is
// refused by the check registry-name, "!any" that it is somehow.
type registryStep struct {
	label, op string
	args      []string
	set       map[string]string
	want      error // nil where it succeeds
}

// errAny is the refusal by any error.
var errAny = errors.New("any error")

func parseRegistryStep(text string) *registryStep {
	words := strings.Fields(text)
	s := &registryStep{op: words[0], set: map[string]string{}}
	if label, op, labelled := strings.Cut(words[0], "="); labelled {
		s.label, s.op = label, op
	}
	for _, w := range words[1:] {
		name, value, isSet := strings.Cut(w, "=")
		switch check, refused := strings.CutPrefix(w, "!"); {
		case w == "!any":
			s.want = errAny
		case refused:
			s.want = attest.Check("registry-" + check)
		case isSet:
			s.set[name] = value
		default:
			s.args = append(s.args, w)
		}
	}
	return s
}

// steps does what is written, one step after the other.
func (r *registryRun) steps(text string) {
	for step := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ';' || c == '\n' }) {
		switch s := parseRegistryStep(step); s.op {
		case "wait":
			r.advance(duration(s.args[0]))
			r.lookUp()
		case "stale":
			a := s.args[0]
			r.steps(fmt.Sprintf("bind %s !conflict; bind %s 1h !conflict; rebind %s spare !conflict; adopt %s uid=spare !conflict", a, a, a, a))
		case "join":
			_, claim, _ := strings.Cut(step, "join")
			r.steps("joined=reserve" + claim + ";" + s.label + "=bind joined")
		default:
			r.seen[s.label] = r.do(step, s.want, r.call(context.Background(), s))
		}
	}
}

// call is one call of a registry, about a record as it or the rules have it.
func (r *registryRun) call(ctx context.Context, s *registryStep) registryCall {
	seen, c := r.seen[s.args[0]], registryClaim(s.args[0], s.args[len(s.args)-1])
	switch {
	case seen[1] != nil && s.op == "bind":
		c = seen[1].Claim
	case seen[1] != nil:
		c.NodeName = seen[1].NodeName
	}
	for name, field := range map[string]*string{"node": &c.NodeName, "machine": (*string)(&c.Machine), "uid": &c.MachineUID, "pid": &c.ProviderID} {
		if value, set := s.set[name]; set {
			*field = value
		}
	}
	keys := keysOf(&c)
	if c.Check() == nil {
		r.about(keys)
	}
	length := time.Minute
	if value, set := s.set["for"]; set {
		length = duration(value)
	}
	var lastEnd time.Time
	if s.op == "bind" && len(s.args) > 1 {
		lastEnd = r.in(duration(s.args[1]))
	}
	issued := s.issued(&c, lastEnd, r.now())
	return func(registry membership.Registry, side int) (*membership.Record, error) {
		switch s.op {
		case "reserve":
			return registry.Reserve(ctx, c, r.in(length))
		case "bind":
			return registry.Bind(ctx, seen[side], lastEnd, issued)
		case "rebind":
			return registry.Rebind(ctx, seen[side], c.Machine)
		case "adopt":
			return registry.Adopt(ctx, seen[side], c.MachineUID)
		case "release":
			return nil, registry.Release(ctx, c.NodeName, c.MachineUID)
		}
		n := slices.IndexFunc(keys, func(k registryKey) bool { return k.by == s.op })
		return keys[n].find(ctx, registry)
	}
}

// issued is the record that a step gives to bind; nil where it gives none.
func (s *registryStep) issued(c *membership.Claim, lastEnd, now time.Time) *csr.IssuedRecord {
	n := s.set["cert"] + s.set["request"]
	if n == "" {
		return nil
	}
	issued := &csr.IssuedRecord{NodeName: c.NodeName, SignerName: csr.SignerClientTPM, Machine: string(c.Machine), MachineUID: c.MachineUID,
		NodeUID: s.set["nodeuid"], ProviderID: c.ProviderID, RequestUID: "request-" + n, SPKIHash: sha256.Sum256([]byte(n)), NotAfter: lastEnd}
	if s.set["ends"] != "" {
		issued.NotAfter = now.Add(duration(s.set["ends"]))
	}
	if s.set["cert"] != "" {
		issued.CredentialID, issued.NotBefore = "X509SHA256="+hex.EncodeToString(issued.SPKIHash[:]), now
	}
	return issued
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
