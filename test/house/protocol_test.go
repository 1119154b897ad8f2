package house_test

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/oid"
)

// protocolPage is docs/protocol.md, and the facts that it is compared with.
type protocolPage struct {
	text    string
	checks  map[string]bool     // of the repository
	vectors map[string][]string // the expected checks, by the vectors' names
	joins   map[string]bool     // what vectors of the join expect
}

// TestProtocolPage: what docs/protocol.md names exists: checks, vectors, identifiers, limits.
func TestProtocolPage(t *testing.T) {
	none(t, readProtocol(t, readFile(t, "docs/protocol.md")).problems())
}

func TestProtocolPageBites(t *testing.T) {
	page := readProtocol(t, readFile(t, "docs/protocol.md"))
	good := page.text
	for _, c := range []struct{ old, changed, want string }{
		{"`certified-name`: the name", "`certified-names`: the name", "certified-names is no check"},
		{"| `answer-old` | an answer that", "| `answer-older` | an answer that", "answer-older is no check"},
		{"`answer-left-lying`", "`answer-left`", "no vector answer-left"},
		{"`ring-key-retired`, ", "`ring-stale`, ", "vector ring-stale expects [ring-stale], not ring-key"},
		{"| `quote-boot` |", "| `quote-missing` |", "quote-boot is in no table"},
		{"| Hello | 2.25.274969308675442717258829974567625345604.1 |", "| Hello | 2.25.274969308675442717258829974567625345604.2 |", "Hello: "},
		{"`6781051401`", "`6781051402`", "TcgAttestCertify: "},
		{"| Document | ", "| Documents | ", "Documents: "},
		{"`san-form`, `san-reserved`", "`san-reserved`, `san-form`", "the node policy"},
		{"| a Challenge | 16384 bytes", "| a Challenge | 16385 bytes", "a Challenge: 16385"},
		{"| a Challenge | 16384 bytes", "| a Challenges | 16384 bytes", "a Challenges: "},
		{"requester     UTF8String (SIZE (0..1024))", "requester     UTF8String (SIZE (0..1025))", "requester UTF8String (SIZE (0..1024))"},
	} {
		t.Run(c.want, func(t *testing.T) {
			changed := strings.Replace(good, c.old, c.changed, 1)
			if changed == good {
				t.Fatalf("the page has no %q", c.old)
			}
			page.text = changed
			if problems := page.problems(); !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.want) }) {
				t.Errorf("want %q, got %q", c.want, problems)
			}
		})
	}
}

func readProtocol(t *testing.T, text string) *protocolPage {
	t.Helper()
	p := &protocolPage{text: text, checks: map[string]bool{}, vectors: map[string][]string{}, joins: map[string]bool{}}
	for _, c := range namedChecks(t, ".") {
		p.checks[c.text] = true
	}
	files, err := filepath.Glob("vectors/data/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	for _, file := range files {
		var v struct {
			Name, Class, Level, Expect string
			Environment                struct{ FirstUse any }
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.vectors[v.Name] = append(p.vectors[v.Name], v.Expect)
		if (v.Class == "statement" || v.Class == "binding") && v.Level != "registry" && v.Environment.FirstUse == nil {
			p.joins[v.Expect] = true
		}
		if v.Level == "credential" {
			p.checks[cmp.Or(v.Expect, "credential-size")] = true // faults of a credential are names of the vectors
		}
	}
	return p
}

// section is a part of the page from its heading to the next of its level or one above.
func (p *protocolPage) section(heading string) string {
	_, rest, _ := strings.Cut(p.text, "\n"+heading+"\n")
	level, _, _ := strings.Cut(heading, " ")
	for ; level != "#"; level = level[1:] {
		rest, _, _ = strings.Cut(rest, "\n"+level+" ")
	}
	return rest
}

// quoted finds what stands in backquotes.
var quoted = regexp.MustCompile("`([^`\n]+)`")

func codeIn(text string) (words []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// rows are the cells of the tables in a part of the page.
func rows(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| ---") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			all = append(all, cells)
		}
	}
	return all
}

func (p *protocolPage) problems() []string {
	return slices.Concat(p.nameProblems(), p.refusalProblems(), p.identifierProblems(), p.policyProblems(), p.limitProblems())
}

var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// nameProblems: in the order of checks, what looks like a check is one.
func (p *protocolPage) nameProblems() (problems []string) {
	for _, word := range codeIn(p.section("## Order of checks")) {
		if kebab.MatchString(word) && !p.checks[word] {
			problems = append(problems, word+" is no check")
		}
	}
	return problems
}

// refusalProblems: each row names a check, and vectors that expect it; and there is a row for each
// check that a vector of the join expects.
func (p *protocolPage) refusalProblems() (problems []string) {
	rowOf := map[string]bool{"": true}
	for _, cells := range rows(p.section("## What must be refused")) {
		first := codeIn(cells[0])
		if len(cells) != 3 || len(first) != 1 {
			continue // the head of a table
		}
		check := first[0]
		rowOf[check] = true
		if !p.checks[check] {
			problems = append(problems, check+" is no check")
		}
		for _, name := range codeIn(cells[2]) {
			switch expect := p.vectors[name]; {
			case expect == nil:
				problems = append(problems, "no vector "+name)
			case !slices.Contains(expect, check):
				problems = append(problems, fmt.Sprintf("vector %s expects %s, not %s", name, expect, check))
			}
		}
	}
	for check := range p.joins {
		if !rowOf[check] {
			problems = append(problems, check+" is in no table of what must be refused")
		}
	}
	return problems
}

func (p *protocolPage) identifierProblems() (problems []string) {
	known := map[string]oid.OID{
		"TcgAttestCertify": oid.TCGAttestTPMCertify, "Hello": oid.NodeAttestHello, "Proof": oid.NodeAttestProof, "Quote": oid.NodeAttestQuote,
		"EventLog": oid.NodeAttestEventLog, "DocumentHello": oid.NodeAttestDocumentHello, "DocumentProof": oid.NodeAttestDocumentProof, "Document": oid.NodeAttestDocument,
	}
	for _, cells := range rows(p.section("### Object identifiers"))[1:] {
		id := known[cells[0]]
		delete(known, cells[0])
		if got, want := strings.Join(cells[1:], " "), id.String()+" `"+hex.EncodeToString([]byte(id))+"`"; got != want {
			problems = append(problems, cells[0]+": "+got+", want "+want)
		}
	}
	for name := range known {
		problems = append(problems, "no identifier of "+name)
	}
	if id := oid.KubernetesNodeProviderIdentifier.String(); !strings.Contains(p.text, id) {
		problems = append(problems, "no identifier "+id)
	}
	return problems
}

// policyProblems: the rules of the node policy are there, in their order.
func (p *protocolPage) policyProblems() []string {
	_, rest, _ := strings.Cut(p.section("### The request and its policy"), "Of the object:")
	object, rest, _ := strings.Cut(rest, "Of the PKCS#10")
	_, rest, _ = strings.Cut(rest, "Of its content and of the machine:")
	content, _, _ := strings.Cut(rest, "\n\n")
	var want []string
	for _, c := range slices.Concat(csr.PolicyChecks()) {
		want = append(want, string(c))
	}
	if got := slices.Concat(codeIn(object), codeIn(content)); !slices.Equal(got, want) {
		return []string{fmt.Sprintf("the node policy: %q, want %q", got, want)}
	}
	return nil
}

func (p *protocolPage) limitProblems() (problems []string) {
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	limits := map[string]int{
		"`spec.request`": 1 << 20, "the PKCS#10 request": 64 << 10, "the AttestationBundle": der.MaxEvidenceSize, "a certificate in it": der.MaxCertificateSize,
		"a Challenge": der.MaxChallengeSize, "a TPMS_ATTEST": 1024, "a TPMT_PUBLIC": tpmwire.MaxTPMTPublicSize, "a TPMT_SIGNATURE": 1024,
		"notAfter − issuedAt": seconds(message.MaxWindow), "the age of a hello": seconds(message.MaxHelloAge), "the age of an answer": seconds(message.MaxAnswerAge),
		"the age of a reading of a shared key ring": seconds(message.MaxRingAge), "signatures that one hello may cost": 10, "signatures that one answer may cost": 12,
	}
	left := maps.Clone(limits)
	for _, cells := range rows(p.section("### Sizes and limits"))[1:] {
		number, _, _ := strings.Cut(cells[1], " ")
		if want := strconv.Itoa(limits[cells[0]]); number != want {
			problems = append(problems, cells[0]+": "+number+", want "+want)
		}
		delete(left, cells[0])
	}
	for name := range left {
		problems = append(problems, "no limit of "+name)
	}
	module := strings.Join(strings.Fields(p.section("## Messages in ASN.1")), " ")
	for field, most := range map[string]int{
		"attestations SEQUENCE SIZE (1..%d)": message.MaxStatements, "certs SEQUENCE SIZE (1..%d)": der.MaxCertificates,
		"clusterID UTF8String (SIZE (1..%d))": der.MaxClusterIDSize, "signerName UTF8String (SIZE (1..%d))": der.MaxSignerNameSize,
		"requester UTF8String (SIZE (0..%d))": der.MaxRequesterSize, "akPublic OCTET STRING (SIZE (1..%d))": der.MaxPublicSize,
		"keyID OCTET STRING (SIZE (%d))": message.KeyIDSize, "nonce OCTET STRING (SIZE (%d))": message.NonceSize,
		"akName OCTET STRING (SIZE (0..%d))": message.MaxNameSize, "issuedAt INTEGER (0..%d)": der.MaxUnixSeconds,
		"clear [0] OCTET STRING (SIZE (%d))": message.SecretSize, "EventLog ::= OCTET STRING (SIZE (1..%d))": statement.MaxEventLogSize,
	} {
		if text := fmt.Sprintf(field, most); !strings.Contains(module, text) {
			problems = append(problems, "the module has no "+text)
		}
	}
	return problems
}
