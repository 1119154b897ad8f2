package attesttest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
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

// steps does what is written, one step after the other:
//
//	reserve 1 2       node-1 for machine test:2, for a minute
//	join 1 2          the same, and bind
//	bind a            the record that was labelled a
//	raise a 1h        its last end, from now
//	rebind a 2        to test:2
//	adopt a           the UID
//	lookup 1          node-1
//	release 1         node-1
//	wait 1m
//	stale a           bind, raise, rebind and adopt, all refused: a is not the record of now
//
// A step that begins with "a=" labels what it returns. "uid=" and "pid=" are another
// Machine UID and provider ID than the node's own. "!name" says that the step is refused
// by the check registry-name.
func (r *registryRun) steps(text string) {
	for step := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ';' || c == '\n' }) {
		if words := strings.Fields(step); len(words) > 0 {
			r.step(strings.Join(words, " "), words)
		}
	}
}

func (r *registryRun) step(what string, words []string) {
	label, op, labelled := strings.Cut(words[0], "=")
	if !labelled {
		label, op = "", label
	}
	args, check, set := []string{"", "", ""}[:0], attest.Check(""), map[string]string{}
	for _, w := range words[1:] {
		name, value, isSet := strings.Cut(w, "=")
		switch refused, isCheck := strings.CutPrefix(w, "!"); {
		case isCheck:
			check = attest.Check("registry-" + refused)
		case isSet:
			set[name] = value
		default:
			args = append(args, w)
		}
	}
	switch op {
	case "wait":
		r.advance(duration(args[0]))
		r.lookUp()
	case "stale":
		for _, call := range []string{"bind %s", "raise %s 1h", "rebind %s spare", "adopt %s uid=spare"} {
			r.steps(fmt.Sprintf(call+" !conflict", args[0]))
		}
	case "join":
		r.steps("joined=reserve" + strings.TrimPrefix(what, words[0]) + ";" + label + "=bind joined")
	default:
		r.seen[label] = r.do(what, check, r.call(op, args, set))
	}
}

// call is one call of a registry, the second of a record as it or the rules have it.
func (r *registryRun) call(op string, args []string, set map[string]string) func(membership.Registry, int) (*membership.Record, error) {
	ctx, seen := context.Background(), r.seen[args[0]]
	c := registryClaim(args[0], args[len(args)-1])
	if uid, ok := set["uid"]; ok {
		c.MachineUID = uid
	}
	if id, ok := set["pid"]; ok {
		c.ProviderID = id
	}
	if seen[1] != nil {
		c.NodeName = seen[1].NodeName
	}
	r.about(c)
	return func(registry membership.Registry, side int) (*membership.Record, error) {
		switch op {
		case "reserve":
			return registry.Reserve(ctx, c, r.in(time.Minute))
		case "bind":
			return registry.Bind(ctx, seen[side])
		case "raise":
			return registry.Raise(ctx, seen[side], r.in(duration(args[1])))
		case "rebind":
			return registry.Rebind(ctx, seen[side], c.Machine)
		case "adopt":
			return registry.Adopt(ctx, seen[side], c.MachineUID)
		case "release":
			return nil, registry.Release(ctx, c.NodeName, c.MachineUID)
		case "lookup":
			return registry.Lookup(ctx, c.NodeName)
		}
		panic("no step is called " + op)
	}
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
