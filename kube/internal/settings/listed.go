package settings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Listed is an inventory of one or more parts, as it is at a moment.
type Listed struct {
	machines map[string]*csr.Machine // by node name
	// refused says of the nodes with an entry that another part contradicts, why.
	refused map[string]error
	// parts is the number of parts, and broken are the parts that cannot be read as they are now: the machines of
	// such a part are the last that were read.
	parts  int
	broken []*part
}

// ParseParts reads an inventory of several parts, each with its name and text. [Listed.Problems] names the
// parts and entries that it cannot use.
func (s *Settings) ParseParts(texts map[string][]byte) *Listed {
	parts := make([]*part, 0, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		p := &part{name: name}
		p.machines, p.err = s.parse(texts[name])
		parts = append(parts, p)
	}
	return merge(parts)
}

// merge makes an inventory of its parts. Entries of different parts that share a node name, a UID, an identity or
// a provider ID are all refused, and so is an entry with a DNS name that is the name of another part's node: no part
// has precedence.
func merge(parts []*part) *Listed {
	n := 0
	for _, p := range parts {
		n += len(p.machines)
	}
	l := &Listed{machines: make(map[string]*csr.Machine, n), refused: map[string]error{}, parts: len(parts)}
	all := newUnique(n)
	for _, p := range parts {
		if p.err != nil {
			l.broken = append(l.broken, p)
		}
		for i := range p.machines {
			e := entry{p.name, &p.machines[i]}
			l.machines[e.machine.NodeName] = e.machine
			all.add(e, func(first entry, what string) { l.refuse(what, first, e) })
		}
	}
	for _, p := range parts {
		for i := range p.machines {
			if name, of := all.served(&p.machines[i]); of.machine != nil {
				l.refused[p.machines[i].NodeName] = fmt.Errorf("the entry of node %s in part %s has the DNS name %s, which is a node of part %s: the entry is not used",
					p.machines[i].NodeName, p.name, refusal.Quote(name), of.part)
			}
		}
	}
	for name := range l.refused {
		delete(l.machines, name)
	}
	return l
}

// refuse refuses two entries that share a value.
func (l *Listed) refuse(what string, a, b entry) {
	err := fmt.Errorf("%s is in part %s, for node %s, and in part %s, for node %s: neither entry is used",
		what, a.part, a.machine.NodeName, b.part, b.machine.NodeName)
	for _, e := range [...]entry{a, b} {
		if l.refused[e.machine.NodeName] == nil {
			l.refused[e.machine.NodeName] = err
		}
	}
}

// Machine finds the machine for a node name, for csr.Policy. For an entry that is refused, and for a node that no
// part has while one of them cannot be read, the error matches [refusal.ErrRetry]: the inventory does not say that
// there is no such machine.
func (l *Listed) Machine(_ context.Context, q csr.Question) (*csr.Machine, error) {
	if l == nil {
		return nil, csr.ErrNoMachine
	}
	if err := l.refused[q.NodeName]; err != nil {
		return nil, refusal.Retry(fmt.Errorf("the inventory: %w", err))
	}
	if m, ok := l.machines[q.NodeName]; ok {
		machine := *m
		return &machine, nil
	}
	if len(l.broken) != 0 {
		return nil, refusal.Retry(fmt.Errorf("the inventory: no part that can be read has node %s, and %s cannot be read", refusal.Quote(q.NodeName), l.brokenParts()))
	}
	return nil, csr.ErrNoMachine
}

// brokenParts names some of the parts that cannot be read.
func (l *Listed) brokenParts() string {
	const most = 3
	var names []string
	for _, p := range l.broken[:min(most, len(l.broken))] {
		names = append(names, refusal.Text(p.name))
	}
	text := strings.Join(names, ", ")
	if n := len(l.broken) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// All returns the machines by node name, without those whose entries are refused.
func (l *Listed) All() map[string]csr.Machine {
	all := make(map[string]csr.Machine, len(l.machines))
	for name, m := range l.machines {
		all[name] = *m
	}
	return all
}

// Problems returns an error for each part that cannot be read, and for each value that is in two parts, in an order
// that does not change.
func (l *Listed) Problems() (all []error) {
	for _, p := range l.broken {
		all = append(all, fmt.Errorf("part %s of the inventory cannot be read: %w", refusal.Text(p.name), p.err))
	}
	var last error
	for _, name := range slices.Sorted(maps.Keys(l.refused)) {
		if err := l.refused[name]; !errors.Is(err, last) {
			all, last = append(all, err), err
		}
	}
	return all
}
