package attest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/secret"
)

// finding is a kind's findings about an answer, with description, claim and inputs.
type finding struct {
	road      Road
	stage     Stage
	presented Presented
	inquiry   Inquiry
	found     Findings
	describe  func(*Description)
}

// goodFinding is one that is accepted.
func goodFinding() *finding {
	f := &finding{road: RoadAK, stage: StageAnswer, describe: allRoads}
	f.presented = Presented{Machine: "fake:m1"}
	f.inquiry = Inquiry{challenged: &Challenged{format: "fake/v1", secret: secret.New(bytes.Repeat([]byte{7}, 32)), binding: []byte{1}},
		statements: []Label{{Name: "document", Size: 32}}}
	f.found = Findings{Machine: "fake:m1", MachineStanding: Asserted, Values: map[string][]byte{"document": f.inquiry.challenged.QualifyingData("document")}}
	return f
}

// accept returns the verifier's result.
func (f *finding) accept(t *testing.T) (*Result, error) {
	t.Helper()
	k := testkit.Must(newOpenKind(&fakeKind{describe: f.describe}))
	f.presented.Road = f.road
	r := &Result{Stage: f.stage}
	return r, r.accept(k, &f.presented, &f.inquiry, &f.found)
}

func TestIdentitiesOfFindings(t *testing.T) {
	for name, c := range map[string]struct {
		claimed, found Identity
		want           Check
	}{
		"the claimed one":             {"fake:m1", "fake:m1", ""},
		"of another declared kind":    {"", "other:m1", ""},
		"none is claimed":             {"", "fake:m1", ""},
		"none is found":               {"fake:m1", "", CheckIdentity},
		"neither":                     {"", "", CheckIdentity},
		"no kind":                     {"", ":m1", CheckIdentity},
		"no colon":                    {"", "name", CheckIdentity},
		"no name":                     {"", "fake:", CheckIdentity},
		"a kind alone":                {"", "fake", CheckIdentity},
		"of a kind that is no kind":   {"", "unknown:m1", CheckKind},
		"of the beginning of a kind":  {"", "fak:m1", CheckKind},
		"another than the claimed":    {"fake:m1", "fake:m2", CheckMachineClaim},
		"another spelling":            {"fake:m1", "fake:M1", CheckMachineClaim},
		"more than the claimed":       {"fake:m1", "fake:m11", CheckMachineClaim},
		"another kind than claimed":   {"fake:m1", "other:m1", CheckMachineClaim},
		"a claim that is no identity": {"m1", "fake:m1", CheckMachineClaim},
		"with a space":                {"", "fake:m 1", CheckIdentity},
		"with a line feed":            {"", "fake:m1\n", CheckIdentity},
		"of the longest name":         {"", Identity("fake:" + strings.Repeat("m", 1019)), ""},
		"of a longer one":             {"", Identity("fake:" + strings.Repeat("m", 1020)), CheckIdentity},
		"as the grammar has it":       {"", "spelt:m1", ""},
		"in another spelling":         {"", "spelt:M1", CheckIdentity},
		"that the grammar refuses":    {"", "spelt:", CheckIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFinding()
			f.describe = func(d *Description) {
				allRoads(d)
				d.Roads[0].Identities = append(d.Roads[0].Identities, Grammar{Kind: "spelt", Parse: func(id Identity) (Identity, error) { return Identity(strings.ToLower(string(id))), nil }})
			}
			f.presented.Machine, f.found.Machine = c.claimed, c.found
			r, err := f.accept(t)
			expectRefusal(t, err, c.want)
			if c.want == "" && r.Machine != c.found || c.want != "" && r.Machine != "" {
				t.Errorf("the result is of %q", r.Machine)
			}
		})
	}
}

// Each statement that must be there covers the challenge, once.
func TestValuesOfFindings(t *testing.T) {
	labels := func(labels ...Label) func(*finding) {
		return func(f *finding) {
			f.describe = func(d *Description) { allRoads(d); d.Statements = labels }
			f.inquiry.statements = labels
		}
	}
	values := func(f *finding, labels ...string) {
		f.found.Values = map[string][]byte{}
		for _, l := range labels {
			f.found.Values[l] = f.inquiry.challenged.QualifyingData(l)
		}
	}
	two := labels(Label{Name: "a", Size: 32}, Label{Name: "b", Size: 32, Optional: true})
	short := labels(Label{Name: "document", Size: 16})
	cut := func(n int) func(*finding) {
		return func(f *finding) { short(f); f.found.Values["document"] = f.found.Values["document"][:n] }
	}
	for name, c := range map[string]struct {
		change func(*finding)
		want   Check
	}{
		"as it is":              {func(*finding) {}, ""},
		"missing":               {func(f *finding) { values(f) }, CheckKind},
		"of another challenge":  {func(f *finding) { f.found.Values["document"] = make([]byte, 32) }, CheckQualifyingData},
		"the last bit":          {func(f *finding) { f.found.Values["document"][31] ^= 1 }, CheckQualifyingData},
		"nothing":               {func(f *finding) { f.found.Values["document"] = nil }, CheckQualifyingData},
		"a prefix":              {func(f *finding) { f.found.Values["document"] = f.found.Values["document"][:16] }, CheckQualifyingData},
		"all but the last byte": {func(f *finding) { f.found.Values["document"] = f.found.Values["document"][:31] }, CheckQualifyingData},
		"a byte more":           {func(f *finding) { f.found.Values["document"] = append(f.found.Values["document"], 0) }, CheckQualifyingData},
		"undeclared":            {func(f *finding) { values(f, "document", "quote") }, CheckKind},
		"undeclared alone":      {func(f *finding) { values(f, "quote") }, CheckKind},
		"the secret's label":    {func(f *finding) { values(f, "document", "secret") }, CheckKind},
		"of the other label": {func(f *finding) {
			two(f)
			values(f, "a")
			f.found.Values["b"] = f.found.Values["a"]
		}, CheckQualifyingData},
		"both":                    {func(f *finding) { two(f); values(f, "a", "b") }, ""},
		"the other way round":     {func(f *finding) { two(f); values(f, "b", "a") }, ""},
		"the optional one absent": {func(f *finding) { two(f); values(f, "a") }, ""},
		"the optional one alone":  {func(f *finding) { two(f); values(f, "b") }, CheckKind},
		"16 bytes of 16":          {cut(16), ""},
		"15 bytes of 16":          {cut(15), CheckQualifyingData},
		"17 bytes of 16":          {cut(17), CheckQualifyingData},
		"32 bytes of 16":          {short, CheckQualifyingData},
		"no challenge": {func(f *finding) {
			f.inquiry.challenged = nil
		}, CheckKind},
		"none for a hello": {func(f *finding) { f.stage = StageHello; values(f) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFinding()
			c.change(f)
			r, err := f.accept(t)
			expectRefusal(t, err, c.want)
			if c.want != "" && r.Machine != "" {
				t.Errorf("the result is of %q", r.Machine)
			}
		})
	}
}

// A standing is lowered to the declared one.
func TestStandingsAreLowered(t *testing.T) {
	for name, c := range map[string]struct {
		standing, most, want Standing
	}{
		"as declared":               {Asserted, Asserted, Asserted},
		"below":                     {Claimed, Asserted, Claimed},
		"proven and proven":         {Proven, Proven, Proven},
		"above":                     {Proven, Asserted, Asserted},
		"far above":                 {Proven, Claimed, Claimed},
		"above nothing":             {Proven, "", ""},
		"a claim above nothing":     {Claimed, "", ""},
		"nothing":                   {"", Proven, ""},
		"the control plane's word":  {Vouched, Proven, ""},
		"a standing of one's own":   {"sworn", Proven, ""},
		"one's own, above nothing":  {"sworn", "", ""},
		"vouched where it says all": {Vouched, Asserted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.standing.atMost(c.most); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The machine, the key and every fact are lowered, each to its own most: facts to the
// higher of the two.
func TestStandingsOfFindings(t *testing.T) {
	facts := []Fact{{Proven, "a", "1"}, {Claimed, "b", "2"}, {Vouched, "c", "3"}}
	for name, c := range map[string]struct {
		road                               OpenRoad
		machine, residence, fact, resident Standing // found, and last the key's in the result
		wantMachine                        Standing
		isResident                         bool
	}{
		"a document":       {OpenRoad{Machine: Asserted}, Proven, Proven, Asserted, "", Asserted, false},
		"road AK":          {OpenRoad{Machine: Asserted, Residence: Asserted}, Proven, Proven, Asserted, Asserted, Asserted, true},
		"road EK":          {OpenRoad{Machine: Proven, Residence: Proven}, Proven, Proven, Proven, Proven, Proven, true},
		"residence above":  {OpenRoad{Machine: Asserted, Residence: Proven}, Proven, Proven, Proven, Proven, Asserted, true},
		"residence below":  {OpenRoad{Machine: Proven, Residence: Claimed}, Proven, Proven, Proven, Claimed, Proven, false},
		"nothing of a key": {OpenRoad{Machine: Proven, Residence: Proven}, Proven, "", Proven, "", Proven, false},
		"a claim of a key": {OpenRoad{Machine: Proven, Residence: Proven}, Proven, Claimed, Proven, Claimed, Proven, false},
		"a vouched key":    {OpenRoad{Machine: Proven, Residence: Proven}, Proven, Vouched, Proven, "", Proven, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFinding()
			f.describe = func(d *Description) {
				c.road.Road, c.road.Identities = RoadAK, []Grammar{{Kind: "fake"}}
				d.Roads = []OpenRoad{c.road}
			}
			f.found.MachineStanding, f.found.ResidenceStanding, f.found.TPMResident = c.machine, c.residence, true
			f.found.Facts, f.found.Residence, f.found.Details = func() []Fact { return facts }, func() string { return "in a TPM" }, "details"
			f.found.IdentityClass, f.found.ManyIdentities = "class", "many"
			r := testkit.Must(f.accept(t))
			if r.MachineStanding != c.wantMachine || r.ResidenceStanding != c.resident || r.TPMResident != c.isResident {
				t.Errorf("machine %q, residence %q, %t", r.MachineStanding, r.ResidenceStanding, r.TPMResident)
			}
			if want := []Fact{{c.fact, "a", "1"}, {Claimed, "b", "2"}, {"", "c", "3"}}; !slices.Equal(r.Facts()[1:4], want) {
				t.Errorf("facts %v, want %v", r.Facts(), want)
			}
			if r.Details != "details" || r.IdentityClass != "class" || r.ManyIdentities != "many" || r.residence() != "in a TPM" {
				t.Errorf("%+v", r)
			}
			if facts[0].Standing != Proven {
				t.Error("the kind's own facts were changed")
			}
		})
	}
}

// An identity has one of the standings that evidence can give; every other is the kind's fault.
func TestStandingsOfNothing(t *testing.T) {
	for _, stage := range []Stage{StageHello, StageAnswer} {
		for standing, want := range map[Standing]Check{Claimed: "", Asserted: "", Proven: "", "": CheckKind, Vouched: CheckKind, "sworn": CheckKind} {
			if stage == StageAnswer && standing == Claimed {
				want = CheckKind // an answer that shows nothing
			}
			t.Run(stage.String()+" "+string(standing), func(t *testing.T) {
				f := goodFinding()
				f.stage, f.found.MachineStanding = stage, standing
				r, err := f.accept(t)
				expectRefusal(t, err, want)
				if (r.Machine != "") != (want == "") || (r.MachineStanding != "") != (want == "") {
					t.Errorf("the result is of %q, %q", r.Machine, r.MachineStanding)
				}
			})
		}
	}
}

// A key that must live in a TPM: on a road that never shows it the hello is refused.
func TestRequiredResidence(t *testing.T) {
	for name, c := range map[string]struct {
		stage    Stage
		road     Road
		resident bool
		standing Standing
		want     Check
	}{
		"an answer that shows it":       {StageAnswer, RoadAK, true, Asserted, ""},
		"one that claims it":            {StageAnswer, RoadAK, true, Claimed, checkNotResident},
		"one that does not say how":     {StageAnswer, RoadAK, true, "", checkNotResident},
		"one that does not say so":      {StageAnswer, RoadAK, false, Proven, checkNotResident},
		"a document that says so":       {StageAnswer, RoadDocument, true, Proven, checkNotResident},
		"a hello before it is shown":    {StageHello, RoadAK, false, "", ""},
		"a hello before its credential": {StageHello, RoadEK, false, "", ""},
		"a hello of a document":         {StageHello, RoadDocument, false, "", checkNotResident},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFinding()
			f.road, f.stage, f.inquiry.RequireTPMResident = c.road, c.stage, true
			f.found.TPMResident, f.found.ResidenceStanding = c.resident, c.standing
			_, err := f.accept(t)
			expectRefusal(t, err, c.want)
			f = goodFinding()
			f.road, f.stage = c.road, c.stage
			f.found.TPMResident, f.found.ResidenceStanding = c.resident, c.standing
			if _, err = f.accept(t); err != nil {
				t.Errorf("where it is not asked for: %v", err)
			}
		})
	}
}
