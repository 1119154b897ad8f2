package membership

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/authorizer"
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/internal/plaintext"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// MaxMemberListSize is the largest size of a [StaticList] file, in bytes: room for more than
// 100,000 machines.
const MaxMemberListSize = 16 << 20

// ErrMemberList says that a list of members is malformed. The error that wraps it names the
// line.
var ErrMemberList = errors.New("member list refused")

// Member is one machine that may be one node.
type Member struct {
	// Machine is its identity, as attest.ParseIdentity reads it. An ek: identity is found on
	// attest.RoadEK, every other one on attest.RoadAK, and counts only there.
	Machine attest.Identity
	// NodeName is the only node that it may be.
	NodeName string
	// ProviderID is the provider ID to vouch for, up to oid.MaxProviderIDSize bytes without
	// spaces; "" means that of the inventory (csr.Machine).
	ProviderID string
	// Provider is the only kind of evidence by which the machine is known; empty means "tpm".
	// In a list it is the last field, as provider=<name>.
	Provider string
}

// foundOn reports whether the machine's identity belongs to the road: an ek: identity to
// attest.RoadEK, every other one to the provider's other road.
func (m *Member) foundOn(open attest.OpenRoad) bool {
	return open.Provider == cmp.Or(m.Provider, defaultProvider) && (m.Machine.Kind() == "ek") == (open.Road == attest.RoadEK)
}

// StaticList admits the machines of a list, each as its node. It is an attest.Authorizer that
// writes nothing and never changes; to change the list, edit it, read it again and swap it in.
//
// As text it has one line per machine,
//
//	<machine identity> <node name>
//	<machine identity> <node name> <provider ID>
//
// with one space between fields, and a line feed after every line except possibly the last (an
// editor or a ConfigMap may have left it out). Empty lines, and lines that begin with "#", are
// for human readers. A machine or a node name that is listed twice is an error, as is every
// other deviation: a half-understood list is no list.
type StaticList struct {
	members []Member // as listed
	byName  map[string]*Member
	machine map[attest.Identity]*Member
}

// NewStaticList makes a list of members. It returns an error that wraps [ErrMemberList] as
// [ParseStaticList] does, with the number of the member.
func NewStaticList(members []Member) (*StaticList, error) {
	l := &StaticList{members: slices.Clone(members), byName: map[string]*Member{}, machine: map[attest.Identity]*Member{}}
	for i := range l.members {
		if err := l.index(&l.members[i]); err != nil {
			return nil, fmt.Errorf("membership: %w: member %d: %w", ErrMemberList, i+1, err)
		}
	}
	return l, nil
}

// ParseStaticList reads a list as text of at most [MaxMemberListSize] bytes. An error wraps
// [ErrMemberList] and names the line. A list without members is accepted, and admits nobody.
func ParseStaticList(text []byte) (*StaticList, error) {
	if len(text) > MaxMemberListSize {
		return nil, fmt.Errorf("membership: %w: got over %d bytes", ErrMemberList, MaxMemberListSize)
	}
	l := &StaticList{byName: map[string]*Member{}, machine: map[attest.Identity]*Member{}}
	for n := 1; len(text) > 0; n++ {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		m, err := parseMember(string(line))
		if m != nil {
			err = l.index(m)
		}
		if err != nil {
			return nil, fmt.Errorf("membership: %w: line %d: %w", ErrMemberList, n, err)
		}
		if m != nil {
			l.members = append(l.members, *m)
		}
	}
	return l, nil
}

// ReadStaticList reads a list from a file.
func ReadStaticList(path string) (*StaticList, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxMemberListSize+1))
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	return ParseStaticList(text)
}

// providerField begins the field of a line that sets Member.Provider.
const providerField = "provider="

// parseMember reads one line; it returns nil for one meant for human readers.
func parseMember(line string) (*Member, error) {
	if line == "" || line[0] == '#' {
		return nil, nil
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

// index checks a member and adds it to the indexes.
func (l *StaticList) index(m *Member) error {
	var err error
	if m.Machine, err = attest.ParseIdentity(string(m.Machine)); err != nil {
		return err
	}
	switch {
	case !nodename.Valid(m.NodeName):
		return badClaim(m.NodeName, "a node name")
	case !plaintext.Valid(m.Provider, 63) || strings.ContainsAny(m.Provider, " /"):
		return errors.New("the provider is too long, not printable, or has a space or a slash in it")
	case strings.HasPrefix(m.ProviderID, providerField):
		return errors.New("the provider ID begins with " + providerField)
	case !plaintext.Valid(m.ProviderID, oid.MaxProviderIDSize) || strings.Contains(m.ProviderID, " "):
		return errors.New("the provider ID is too long, not printable, or has a space in it")
	case l.byName[m.NodeName] != nil:
		return fmt.Errorf("node %s is listed twice", m.NodeName)
	case l.machine[m.Machine] != nil:
		return fmt.Errorf("machine %s is listed twice", m.Machine)
	}
	l.byName[m.NodeName], l.machine[m.Machine] = m, m
	return nil
}

// Members returns the members in the order of the list.
func (l *StaticList) Members() []Member { return slices.Clone(l.members) }

// Marshal returns the list as text that [ParseStaticList] reads, without the lines meant for
// human readers.
func (l *StaticList) Marshal() []byte {
	var b bytes.Buffer
	for _, m := range l.members {
		b.WriteString(string(m.Machine) + " " + m.NodeName)
		if m.ProviderID != "" {
			b.WriteString(" " + m.ProviderID)
		}
		if m.Provider != "" {
			b.WriteString(" " + providerField + m.Provider)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// CheckAuthorizer refuses a list that neither [NewStaticList] nor [ParseStaticList] made, and
// one that names machines but none that could be found on an open road.
func (l *StaticList) CheckAuthorizer(open []attest.OpenRoad) error {
	if l == nil || l.byName == nil {
		return errNoList
	}
	if len(l.members) > 0 && !slices.ContainsFunc(l.members, func(m Member) bool { return slices.ContainsFunc(open, m.foundOn) }) {
		return fmt.Errorf("membership: %w: no member is of a road that is open", ErrMemberList)
	}
	return nil
}

var errNoList = refusal.Config("StaticList", "", "one that NewStaticList or ParseStaticList made")

// Authorize admits the machine that is listed for the node's name, and vouches for the
// provider ID in the list and the SANs in the inventory. A refusal is an attest.NotMember
// error.
func (l *StaticList) Authorize(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
	if l == nil || l.byName == nil {
		return nil, errNoList
	}
	m := l.machine[r.Machine]
	switch {
	case m == nil:
		return nil, attest.NotMember("machine " + string(r.Machine) + ", which is not listed")
	case !m.foundOn(attest.OpenRoad{Provider: r.Provider, Road: r.Road}):
		return nil, attest.NotMember("machine " + string(r.Machine) + " on road " + r.Road.String() + " of " + r.Provider + ", where it is not found")
	case m.NodeName != r.NodeName:
		return nil, attest.NotMember("machine " + string(r.Machine) + " as node " + r.NodeName + ", which is listed as " + m.NodeName)
	}
	return vouch(r, m.ProviderID)
}

// Both returns an authorizer that admits what both admit: a list in front of trust on first
// use, for example. It vouches for what both vouch for: the provider ID if they agree on it
// (none if one of them vouches for none; two that differ are a refusal), the SANs that both
// have, and the earlier of the two ends. It asks first before second, and does not ask second
// if first refuses. Each is asked through its Authorize method, whatever its type. What it
// hands to Result.WhenAdmitted is written only after both, and anyone else who is asked, have
// admitted the machine.
func Both(first, second attest.Authorizer) attest.Authorizer { return &both{first, second} }

type both struct{ first, second attest.Authorizer }

// CheckAuthorizer checks both.
func (b *both) CheckAuthorizer(open []attest.OpenRoad) error {
	if err := authorizer.Check(b.first, open); err != nil {
		return fmt.Errorf("first of both: %w", err)
	}
	if err := authorizer.Check(b.second, open); err != nil {
		return fmt.Errorf("second of both: %w", err)
	}
	return nil
}

// Authorize asks both.
func (b *both) Authorize(ctx context.Context, r *attest.Result, request *csr.Request) (*attest.Authorization, error) {
	first, err := ask(ctx, b.first, r, request)
	if err != nil {
		return nil, err
	}
	second, err := ask(ctx, b.second, r, request)
	if err != nil {
		return nil, err
	}
	return intersect(r, first, second)
}

// ask asks one of the two, whatever it is.
func ask(ctx context.Context, a attest.Authorizer, r *attest.Result, request *csr.Request) (*attest.Authorization, error) {
	if typednil.Is(a) {
		return nil, attest.NotMember("machine " + string(r.Machine) + " (there is no authorizer to ask)")
	}
	authorization, err := a.Authorize(ctx, r, request)
	if err == nil && authorization == nil {
		err = attest.NotMember("machine " + string(r.Machine) + " (no authorization was given)")
	}
	if err != nil {
		return nil, err
	}
	return authorization, nil
}

// intersect is what both vouch for.
func intersect(r *attest.Result, a, b *attest.Authorization) (*attest.Authorization, error) {
	both := &attest.Authorization{NotAfter: earlier(a.NotAfter, b.NotAfter)}
	switch {
	case a.ProviderID == b.ProviderID:
		both.ProviderID = a.ProviderID
	case a.ProviderID != "" && b.ProviderID != "":
		return nil, attest.NotMember("machine " + string(r.Machine) + " with two provider IDs, " + a.ProviderID + " and " + b.ProviderID)
	}
	for _, name := range a.DNSNames {
		if slices.ContainsFunc(b.DNSNames, func(other string) bool { return strings.EqualFold(other, name) }) {
			both.DNSNames = append(both.DNSNames, name)
		}
	}
	for _, ip := range a.IPAddresses {
		if slices.ContainsFunc(b.IPAddresses, func(other netip.Addr) bool { return other.Unmap() == ip.Unmap() }) {
			both.IPAddresses = append(both.IPAddresses, ip)
		}
	}
	return both, nil
}

// earlier returns the earlier of two ends, where the zero time means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// inventoryOf is what the policy found for the node's name.
func inventoryOf(r *attest.Result) *csr.Machine {
	if checked := r.Checked(); checked != nil && checked.Machine() != nil {
		return checked.Machine()
	}
	return &csr.Machine{}
}

func requesterOf(r *attest.Result) csr.RequesterClass {
	if r.Checked() == nil {
		return 0
	}
	return r.Checked().Requester().Class
}

// vouch vouches for what the inventory has, with this provider ID; if it is empty, the
// inventory's is used.
func vouch(r *attest.Result, providerID string) (*attest.Authorization, error) {
	m := inventoryOf(r)
	switch {
	case providerID == "":
		providerID = m.ProviderID
	case m.ProviderID != "" && m.ProviderID != providerID:
		return nil, attest.NotMember("machine " + string(r.Machine) + " with provider ID " + providerID + ", which the inventory has as " + m.ProviderID)
	}
	return &attest.Authorization{ProviderID: providerID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}, nil
}
