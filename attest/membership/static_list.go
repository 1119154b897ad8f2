package membership

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxMemberListSize is the largest size of a [StaticList] file, in bytes: room for more than
// 100,000 machines.
const maxMemberListSize = 16 << 20

// checkMemberList: a list of members is malformed, or does not fit the verifier.
const checkMemberList attest.Check = "member-list"

// refuseList refuses a list for one line or member.
func refuseList(where string, err error) error {
	return &attest.Error{Check: checkMemberList, Err: fmt.Errorf("%s: %w", where, err)}
}

// Member is one machine that may be one node.
type Member struct {
	// Machine is its identity, as attest.ParseIdentity reads it. An ek: identity is valid only on
	// attest.RoadEK, every other one only on attest.RoadAK or attest.RoadDocument.
	Machine attest.Identity
	// NodeName is the only node that it may be.
	NodeName string
	// ProviderID is the provider ID to vouch for, such as "gce://project/zone/name", up to
	// oid.MaxProviderIDSize bytes without spaces; "" means that of the inventory (csr.Machine), and
	// "none" that the machine has none and never will.
	ProviderID string
	// Provider is the machine's only kind of evidence; empty means "tpm".
	// In a list it is the last field, as provider=<name>.
	Provider string
}

// foundOn reports whether the machine's identity belongs to the road: an ek: identity to
// attest.RoadEK, every other one to the provider's other road.
func (m *Member) foundOn(open attest.OpenRoad) bool {
	return open.Provider == cmp.Or(m.Provider, defaultProvider) && (m.Machine.Kind() == "ek") == (open.Road == attest.RoadEK)
}

// StaticList is [Members]: it admits the machines of a list, each as its node, and is their inventory. It
// writes nothing and never changes; to change the list, edit it, parse it again and replace the value.
//
// It remembers no keys: with a bootstrap token, a machine gets a certificate for any key, at any time. A
// document can be read by any process on a machine, so combine the list with trust on first use
// ([Both]): then the machine is admitted for its first key alone.
//
// As text it has one line per machine,
//
//	<machine identity> <node name>
//	<machine identity> <node name> <provider ID>
//	<machine identity> <node name> <provider ID> provider=<kind of evidence>
//
// with one space between fields, of which the last two may each be left out, and a line feed
// after every line except possibly the last (an editor or a ConfigMap may have left it out). A
// provider ID has "://" in it, or is "none". Empty lines, and lines that begin with "#", are
// for human readers. A machine, a node name or a provider ID that is listed twice is an error, as is
// every other deviation.
type StaticList struct {
	members []Member // as listed
	byName  map[string]*Member
	machine map[attest.Identity]*Member
	byID    map[string]*Member // by provider ID, in lower case
}

func emptyList() *StaticList {
	return &StaticList{byName: map[string]*Member{}, machine: map[attest.Identity]*Member{}, byID: map[string]*Member{}}
}

// NewStaticList makes a list of members. Errors are as of [ParseStaticList], with the number of the
// member.
func NewStaticList(members []Member) (*StaticList, error) {
	l := emptyList()
	for i, m := range members {
		if err := l.add(&m); err != nil {
			return nil, refuseList("member "+strconv.Itoa(i+1), err)
		}
	}
	return l, nil
}

// ParseStaticList reads a list as text of at most 16 MiB. An error has the check member-list and
// names the line. A list without members is accepted, and admits no machine.
func ParseStaticList(text []byte) (*StaticList, error) {
	if len(text) > maxMemberListSize {
		return nil, &attest.Error{Check: checkMemberList, Got: fmt.Sprintf("over %d bytes", maxMemberListSize)}
	}
	l, n := emptyList(), 0
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		n++
		m, err := parseMember(string(line))
		if m != nil {
			err = l.add(m)
		}
		if err != nil {
			return nil, refuseList("line "+strconv.Itoa(n), err)
		}
	}
	return l, nil
}

// providerField begins the field of a line that sets Member.Provider.
const providerField = "provider="

// parseMember reads one line; it returns nil for an empty line or a comment.
func parseMember(line string) (*Member, error) {
	if line == "" || line[0] == '#' {
		return nil, nil
	}
	for mark, name := range map[string]string{"\ufeff": "a byte order mark", "\r": "a carriage return, as editors on Windows write it", "\t": "a tab"} {
		if strings.Contains(line, mark) {
			return nil, fmt.Errorf("got %s, want UTF-8 text with one space between fields and a line feed behind the line", name)
		}
	}
	fields := strings.Split(line, " ")
	if slices.Contains(fields, "") {
		return nil, errors.New("got a space too many, want one between two fields")
	}
	m, last := &Member{}, len(fields)-1
	provider, named := strings.CutPrefix(fields[last], providerField)
	if named {
		m.Provider, fields = provider, fields[:last]
	}
	if len(fields) != 2 && len(fields) != 3 || named && provider == "" {
		return nil, fmt.Errorf("got %d fields, want, with one space between, a machine identity, a node name, perhaps a provider ID and perhaps provider=<name>", len(fields))
	}
	m.Machine, m.NodeName, m.ProviderID = attest.Identity(fields[0]), fields[1], strings.Join(fields[2:], "")
	return m, nil
}

// add checks a member and adds it.
func (l *StaticList) add(m *Member) (err error) {
	if m.Machine, err = attest.ParseIdentity(string(m.Machine)); err != nil {
		return err
	}
	switch {
	case !names.ValidNode(m.NodeName):
		return checkRegistryClaim.Refuse(m.NodeName, names.WantNode(m.NodeName))
	case m.Provider != "" && !names.ValidLabel(m.Provider):
		return fmt.Errorf("got %s%s, want the name of a kind of evidence, such as tpm or azure: lower-case letters, digits and inner hyphens", providerField, refusal.Quote(m.Provider))
	case !names.ValidText(m.ProviderID, oid.MaxProviderIDSize) || strings.Contains(m.ProviderID, " "):
		return errors.New("the provider ID is too long, not printable, or has a space in it")
	case names.KnownProviderID(m.ProviderID) != "" && oid.CheckProviderID(m.ProviderID) != nil:
		return fmt.Errorf("got %s, want a provider ID, which is <scheme>://<name>, or none, or %s<name>", refusal.Quote(m.ProviderID), providerField)
	case l.byName[m.NodeName] != nil:
		return fmt.Errorf("node %s is listed twice", m.NodeName)
	case l.machine[m.Machine] != nil:
		return fmt.Errorf("machine %s is listed twice", m.Machine)
	}
	if id := oid.CanonicalProviderID(names.KnownProviderID(m.ProviderID)); id != "" {
		if l.byID[id] != nil {
			return fmt.Errorf("provider ID %s is listed twice", refusal.Quote(m.ProviderID))
		}
		l.byID[id] = m
	}
	l.byName[m.NodeName], l.machine[m.Machine] = m, m
	l.members = append(l.members, *m)
	return nil
}

// Members returns the members in the order of the list.
func (l *StaticList) Members() []Member { return slices.Clone(l.members) }

// CheckAuthorizer refuses a list that neither [NewStaticList] nor [ParseStaticList] made, and
// one with a member that fits no open road: its kind of evidence is not open, or its identity is not in
// that kind's canonical form.
func (l *StaticList) CheckAuthorizer(open attest.Opening) error {
	if l == nil || l.byName == nil {
		return errNoList
	}
	for i := range l.members {
		if err := l.members[i].fits(open.Roads); err != nil {
			return refuseList(fmt.Sprintf("member %d, node %s", i+1, l.members[i].NodeName), err)
		}
	}
	return nil
}

// fits checks that a member's identity is valid on one of the open roads.
func (m *Member) fits(open []attest.OpenRoad) error {
	provider := cmp.Or(m.Provider, defaultProvider)
	err := fmt.Errorf("got evidence of %s, which is not open for %s", provider, m.Machine)
	ofKind := func(g attest.Grammar) bool { return g.Kind == m.Machine.Kind() }
	other, known := "", false
	for i := range open {
		here := slices.ContainsFunc(open[i].Identities, ofKind)
		if !m.foundOn(open[i]) {
			if here {
				other = open[i].Provider
			}
			continue
		}
		known = known || here
		id, wrong := open[i].ParseIdentity(m.Machine)
		switch {
		case wrong != nil:
			err = wrong
		case id != m.Machine:
			err = fmt.Errorf("got %s, want it as %s", m.Machine, id)
		default:
			return nil
		}
	}
	if other != "" && other != provider && !known {
		return fmt.Errorf("%w; machines of kind %s are found with %s%s in the line", err, m.Machine.Kind(), providerField, other)
	}
	return err
}

var errNoList = refusal.Config("StaticList", "", "one that NewStaticList or ParseStaticList made")

// Machine is the list as a csr.Policy's inventory: each listed node has a machine that is ready, with the
// identity and the kind of evidence of its line.
func (l *StaticList) Machine(_ context.Context, q csr.Question) (*csr.Machine, error) {
	if l == nil || l.byName == nil {
		return nil, errNoList
	}
	m := l.byName[q.NodeName]
	if m == nil {
		return nil, csr.ErrNoMachine
	}
	return &csr.Machine{Name: m.NodeName, NodeName: m.NodeName, Identity: string(m.Machine), Provider: cmp.Or(m.Provider, defaultProvider),
		ProviderID: m.ProviderID, BootstrapReady: true}, nil
}

// AuthorizeHello refuses what Authorize refuses.
func (l *StaticList) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	_, err := l.Authorize(ctx, r)
	return err
}

// Authorize admits the machine that is listed for the node's name, with the list's provider ID and the
// inventory's SANs. A refusal is an attest.NotMember
// error.
func (l *StaticList) Authorize(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
	if l == nil || l.byName == nil {
		return nil, errNoList
	}
	m := l.machine[r.Machine]
	switch {
	case m == nil:
		return nil, attest.NotMember("machine " + string(r.Machine) + ", which is not listed")
	case !m.foundOn(attest.OpenRoad{Provider: r.Provider, Road: r.Road}):
		return nil, attest.NotMember("machine " + string(r.Machine) + " on road " + r.Road.String() + " of " + r.Provider +
			", which is not the road of its identity")
	case m.NodeName != r.NodeName:
		return nil, attest.NotMember("machine " + string(r.Machine) + " as node " + r.NodeName + ", which is listed as " + m.NodeName)
	}
	return vouch(r, m.NodeName, m.ProviderID), nil
}
