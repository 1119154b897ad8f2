package vector

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// module is where the vectors are, for what reads files.
const module = "../../../vectors"

func loadAll(t testing.TB) *Set {
	t.Helper()
	set, err := Load(Committed())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Every vector is refused by exactly the check that it expects, or accepted.
func TestReplay(t *testing.T) {
	set := loadAll(t)
	for _, v := range set.Vectors {
		t.Run(v.Class+"/"+v.Name, func(t *testing.T) {
			if err := v.Replay(context.Background(), &set.Environment); err != nil {
				t.Error(err)
			}
		})
	}
}

// A replay that cannot fail proves nothing: whatever is changed in an expectation,
// the replay notices.
func TestReplayBites(t *testing.T) {
	set := loadAll(t)
	for _, v := range set.Vectors {
		found, happened := v.run(context.Background(), set.Environment.With(v.Environment))
		if v.conclude(found, happened) != nil {
			t.Errorf("%s/%s is not as expected", v.Class, v.Name)
		}
		for name, change := range expectationChanges(v) {
			changed := *v
			change(&changed)
			if changed.conclude(found, happened) == nil {
				t.Errorf("%s/%s with %s: the replay does not notice", v.Class, v.Name, name)
			}
		}
	}
}

// expectationChanges are other expectations than a vector's own.
func expectationChanges(v *Vector) map[string]func(*Vector) {
	out := map[string]func(*Vector){}
	if v.Cause != "" {
		out["another cause"] = func(v *Vector) { v.Cause = "attest-magic" }
	}
	if v.Expect == "" {
		out["a refusal"] = func(v *Vector) { v.Expect = "attest-magic" }
		if v.Result != nil {
			for name, change := range resultChanges() {
				out["another "+name] = func(v *Vector) {
					result := *v.Result
					change(&result)
					v.Result = &result
				}
			}
		}
		return out
	}
	out["another check"] = func(v *Vector) { v.Expect = "another-check" }
	out["acceptance"] = func(v *Vector) { v.Expect, v.Cause, v.Also, v.Retry = "", "", nil, false }
	out["more rules"] = func(v *Vector) { v.Also = append([]string{"another-rule"}, v.Also...) }
	out["another verdict"] = func(v *Vector) { v.Retry = !v.Retry }
	if len(v.Also) > 0 {
		out["fewer rules"] = func(v *Vector) { v.Also = v.Also[1:] }
	}
	return out
}

func resultChanges() map[string]func(*Result) {
	return map[string]func(*Result){
		"node name":   func(r *Result) { r.NodeName = "another" },
		"machine":     func(r *Result) { r.Machine = "another" },
		"profile":     func(r *Result) { r.Profile = "another" },
		"provider ID": func(r *Result) { r.ProviderID = "another" },
		"binding":     func(r *Result) { r.Binding = []byte("another") },
		"value":       func(r *Result) { r.Value = []byte("another") },
		"source":      func(r *Result) { r.Source = "another" },
		"tolerance":   func(r *Result) { r.Tolerances = append(slices.Clone(r.Tolerances), "another") },
		"secret":      func(r *Result) { r.Secret = []byte("another") },
		"residence":   func(r *Result) { r.TPMResident = other(r.TPMResident, r) },
		"clock":       func(r *Result) { r.ClockTrusted = other(r.ClockTrusted, r) },
	}
}

// other is the other value of a flag. A result that says nothing of it gets another
// fault.
func other(flag *bool, r *Result) *bool {
	if flag == nil {
		r.NodeName = "another"
		return nil
	}
	return new(!*flag)
}

// Each member of the environment counts: some good input is refused without it.
func TestReplayReadsTheEnvironment(t *testing.T) {
	set := loadAll(t)
	for name, change := range map[string]func(*Environment){
		"clock":   func(e *Environment) { e.Now = e.Now.AddDate(1, 0, 0) },
		"cluster": func(e *Environment) { e.ClusterIDs = []string{"another"} },
		"ring":    func(e *Environment) { e.RingKeys = e.RingKeys[:1] },
		"issuers": func(e *Environment) { e.Issuers = nil },
		"policy": func(e *Environment) {
			e.Policy = &Policy{SignerNames: []string{"cluster.x-k8s.io/kubelet-serving-tpm"}}
		},
		"machines": func(e *Environment) { e.Machines = nil },
		"members":  func(e *Environment) { e.Members = nil },
		"resident": func(e *Environment) { e.RequireTPMResident = true },
		"records":  func(e *Environment) { e.Records = nil },
	} {
		t.Run(name, func(t *testing.T) {
			e := set.Environment
			change(&e)
			failed := 0
			for _, v := range set.Vectors {
				if v.Class == "accepted" && v.Replay(context.Background(), &e) != nil {
					failed++
				}
			}
			if failed == 0 {
				t.Errorf("%s: all good inputs are still accepted", name)
			}
		})
	}
}

// Names of vectors and checks are words in lower case with hyphens.
func TestExpectationsAreKebabCase(t *testing.T) {
	for _, v := range loadAll(t).Vectors {
		for _, name := range append([]string{v.Name, v.Expect}, v.Also...) {
			if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
				t.Errorf("%s/%s: name %q", v.Class, v.Name, name)
			}
		}
	}
}

// Input that fits no function is a broken vector, not a refusal.
func TestBrokenVectors(t *testing.T) {
	set := loadAll(t)
	for name, v := range map[string]*Vector{
		"level":        {Level: "another"},
		"format":       {Level: LevelBundle, Bundle: &Bundle{Format: "another"}},
		"extension":    {Level: LevelProviderID, Extensions: []Extension{{ID: "x"}}},
		"big OID":      {Level: LevelProviderID, Extensions: []Extension{{ID: "2.25.274969308675442717258829974567625345604"}}},
		"raw scheme":   {Level: LevelStatement, Statement: &Statement{RawSignature: &RawSignature{Scheme: "x", Hash: "sha256"}}},
		"AK key":       {Level: LevelStatement, Statement: &Statement{AKKey: []byte{1}}},
		"expected key": {Level: LevelStatement, Statement: &Statement{Key: []byte{1}}},
		"option":       {Level: LevelStatement, Statement: &Statement{Options: []string{"x"}}},
		"node key":     {Level: LevelNode, Node: &Node{Key: []byte{1}}},
		"ring key":     {Level: LevelVerify, Environment: &Environment{RingKeys: []RingKey{{ID: "x"}}}},
		"root":         {Level: LevelChallenge, Environment: &Environment{Issuers: []Issuer{{Roots: [][]byte{{1}}}}}},
		"key usage":    {Level: LevelVerify, Environment: &Environment{Issuers: []Issuer{{Profile: Profile{KeyUsage: []string{"x"}}}}}},
		"identity":     {Level: LevelVerify, Environment: &Environment{Issuers: []Issuer{{Profile: Profile{Identity: []string{"x"}}}}}},
		"usage OID":    {Level: LevelVerify, Environment: &Environment{Issuers: []Issuer{{Profile: Profile{ExtKeyUsage: []string{"x"}}}}}},
		"profile OID":  {Level: LevelVerify, Environment: &Environment{Issuers: []Issuer{{Profile: Profile{Extensions: []string{"x"}}}}}},
		"flag":         {Level: LevelRequest, Environment: &Environment{Policy: &Policy{Flag: "x"}}},
		"quote scheme": {Level: LevelQuote, Quote: &Quote{RawSignature: &RawSignature{Scheme: "x", Hash: "sha256"}}},
		"quote option": {Level: LevelQuote, Quote: &Quote{Options: []string{"x"}}},
		"quote key":    {Level: LevelQuote, Quote: &Quote{AKKey: []byte{1}}},
		"no EKs":       {Level: LevelEK, EK: &EK{}},
		"EK root":      {Level: LevelEK, EK: &EK{}, Environment: &Environment{EKIssuers: []EKIssuer{{Roots: [][]byte{{1}}}}}},
		"above an EK":  {Level: LevelEK, EK: &EK{}, Environment: &Environment{EKIssuers: []EKIssuer{{Intermediates: [][]byte{{1}}}}}},
		"tolerance":    {Level: LevelEK, EK: &EK{}, Environment: &Environment{EKIssuers: []EKIssuer{{Profile: &EKProfile{Name: "x", Tolerances: []string{"x"}}}}}},
		"EK extension": {Level: LevelEK, EK: &EK{}, Environment: &Environment{EKIssuers: []EKIssuer{{Profile: &EKProfile{Name: "x", Extensions: []string{"x"}}}}}},
		"CRL":          {Level: LevelEK, EK: &EK{}, Environment: &Environment{EKIssuers: []EKIssuer{{CRLs: [][]byte{{1}}}}}},
		"EK key":       {Level: LevelCredential, Credential: &Credential{EK: []byte{1}}},
		"token key":    {Level: LevelToken, Token: &Token{Key: []byte{1}}},
		"no issuer":    {Level: LevelSigner, Signer: &Signer{}},
		"operation":    {Level: LevelRegistry, Registry: []Operation{{Op: "x"}}},
		"seen":         {Level: LevelRegistry, Registry: []Operation{{Op: "bind"}}},
		"first use":    {Level: LevelVerify, Environment: &Environment{FirstUse: &FirstUse{}}},
		"history":      {Level: LevelVerify, Environment: &Environment{FirstUse: &FirstUse{MaxLifetimeSeconds: 1, History: []Operation{{Op: "x"}}}}},
		"EK algorithm": {Level: LevelVerify, Environment: &Environment{FirstUse: &FirstUse{MaxLifetimeSeconds: 1, EKAlgorithm: "x"}}},
		"good PCRs":    {Level: LevelVerify, Environment: &Environment{GoodPCRs: []PCR{}}},
		"prefix":       {Level: LevelRequest, Environment: &Environment{Policy: &Policy{ReservedIPs: []string{"x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, expect := range []string{"", "bundle-size"} {
				v.Expect = expect
				if err := v.Replay(context.Background(), &set.Environment); err == nil || !strings.Contains(err.Error(), "cannot be replayed") {
					t.Errorf("%s, expecting %q: got %v", name, expect, err)
				}
			}
		})
	}
}
