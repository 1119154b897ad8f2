package bootstraptoken

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// renewalTable reads the truth table in the comment of Renew.
func renewalTable(t *testing.T) [][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "renewal.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Name.Name != "Renew" {
			continue
		}
		for line := range strings.Lines(f.Doc.Text()) {
			if strings.HasPrefix(line, "\t") {
				line = strings.ReplaceAll(line, "run out", "run-out")
				rows = append(rows, strings.Fields(line))
			}
		}
	}
	if len(rows) != 12 || strings.Join(rows[0], " ") != "owner kubelet authentication owner is token action" {
		t.Fatalf("the table reads %q", rows)
	}
	return rows[1:]
}

const renewalTTL = 15 * time.Minute

// renewalTokens are the tokens that the table tells apart, at their boundaries, with the
// words of the table that fit.
var renewalTokens = []struct {
	exists bool
	end    time.Duration // from now; 0 for none
	words  []string
}{
	{false, 0, []string{"gone"}},
	{false, time.Hour, []string{"gone"}},
	{true, 0, []string{"endless"}},
	{true, -time.Hour, []string{"half", "due"}}, // expired
	{true, time.Second, []string{"half", "due"}},
	{true, renewalTTL/2 - 1, []string{"half", "due"}},
	{true, renewalTTL / 2, []string{"due"}},
	{true, renewalTTL / 6 * 5, []string{"due"}},
	{true, renewalTTL/6*5 + 1, nil},
	{true, renewalTTL, nil},
	{true, 24 * time.Hour, nil},
}

// expectedRenewal finds the first row that fits, as a reader of the comment does.
func expectedRenewal(table [][]string, s *RenewalState, words []string) (row int, action string) {
	is := map[bool]string{true: "yes", false: "no"}
	owner := []string{"waiting"}
	if s.Joined {
		owner = []string{"joined"}
	}
	if s.Deleted {
		owner = append(owner, "deleted")
	}
	fits := func(cell string, words ...string) bool { return cell == "any" || slices.Contains(words, cell) }
	for i, row := range table {
		if fits(row[0], string(s.Owner)) && fits(row[1], is[s.KubeletAuthentication]) && fits(row[2], owner...) && fits(row[3], words...) {
			return i, strings.ReplaceAll(row[4], "-", " ")
		}
	}
	return -1, ""
}

func TestRenewWalksItsTable(t *testing.T) {
	table := renewalTable(t)
	used := make([]int, len(table))
	for _, owner := range []Owner{OwnerMachine, OwnerMachinePool} {
		for bits := range 8 {
			for _, held := range renewalTokens {
				s := &RenewalState{
					Owner: owner, KubeletAuthentication: bits&1 != 0, Deleted: bits&2 != 0, Joined: bits&4 != 0,
					Exists: held.exists, TTL: renewalTTL,
				}
				if held.end != 0 {
					s.Expiration = testNow.Add(held.end)
				}
				row, want := expectedRenewal(table, s, held.words)
				if row < 0 {
					t.Fatalf("no row fits %+v", s)
				}
				used[row]++
				got, err := Renew(*s, testNow)
				if err != nil || string(got.Action) != want {
					t.Errorf("%+v: %v, %v, want %s", s, got.Action, err, want)
				}
			}
		}
	}
	for i, n := range used {
		if n == 0 {
			t.Errorf("row %q decides nothing", table[i])
		}
	}
}

func TestRenewTimes(t *testing.T) {
	now := testNow.Add(time.Millisecond)
	due := RenewalState{Owner: OwnerMachinePool, Exists: true, Expiration: now.Add(time.Second), TTL: renewalTTL}
	gone, keep, deleted, lost := due, due, due, due
	gone.Exists, keep.Expiration, deleted.Deleted, lost.Owner, lost.Exists = false, now.Add(time.Hour), true, OwnerMachine, false
	next, end := now.Add(5*time.Minute), testNow.Add(renewalTTL)
	for _, test := range []struct {
		state RenewalState
		want  Renewal
	}{
		{due, Renewal{RenewalExtend, end, next}},
		{gone, Renewal{RenewalReplace, end, next}},
		{keep, Renewal{RenewalKeep, time.Time{}, next}},
		{deleted, Renewal{Action: RenewalRunOut}},
		{lost, Renewal{Action: RenewalLost}},
	} {
		t.Run(fmt.Sprint(test.state), func(t *testing.T) {
			if got, err := Renew(test.state, now); err != nil || *got != test.want {
				t.Errorf("%+v: %+v, %v, want %+v", test.state, got, err, test.want)
			}
		})
	}
}

// TestRenewKeepsATokenAlive: who asks when told to, late by a sixth of the TTL, never lets
// the token of a waiting machine end.
func TestRenewKeepsATokenAlive(t *testing.T) {
	s := &RenewalState{Owner: OwnerMachine, Exists: true, Expiration: testNow.Add(renewalTTL), TTL: renewalTTL}
	for now := testNow; now.Before(testNow.Add(24 * time.Hour)); {
		r, err := Renew(*s, now)
		if err != nil || !s.Expiration.After(now) {
			t.Fatalf("at %v the token of %v has ended, %v", now, s.Expiration, err)
		}
		if r.Action == RenewalExtend {
			s.Expiration = r.Expiration
		}
		now = r.Next.Add(renewalTTL / 6)
	}
}

func TestRenewRefuses(t *testing.T) {
	good := RenewalState{Owner: OwnerMachine, TTL: time.Second}
	noOwner, other, noTTL, negative, short := good, good, good, good, good
	noOwner.Owner, other.Owner, noTTL.TTL, negative.TTL, short.TTL = "", "machine", 0, -time.Hour, time.Second-1
	for _, s := range []RenewalState{{}, noOwner, other, noTTL, negative, short} {
		if r, err := Renew(s, testNow); !errors.Is(err, refusal.CheckConfig) || r != nil {
			t.Errorf("%+v: %v, %v", s, r, err)
		}
	}
	if r, err := Renew(good, time.Time{}); !errors.Is(err, refusal.CheckConfig) || r != nil {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := Renew(good, testNow); err != nil {
		t.Error(err)
	}
}
