package house_test

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// blocksOf says what holds the blocks of code of each page, by page and language, and by heading
// where blocks of one language differ: the test that takes the block from the page and runs, loads
// or compares it, or after "-" the reason why no test does. A test takes all blocks of its kind.
var blocksOf = map[string]string{
	"README.md: text":                      "- a picture of the messages",
	"README.md: go":                        "test/house.TestREADME",
	"README.md: sh":                        "- steps of .ci/run",
	"README.md: sh: Use it in your module": "test/house.TestREADMEModule",
	"CONTRIBUTING.md: sh":                  "- examples of commands that stand in for many",

	"docs/cluster-api.md: sh":                                       "test/kube.TestClusterAPIPage",
	"docs/cluster-api.md: yaml":                                     "test/kube.TestClusterAPIPage",
	"docs/cluster-api-operation.md: sh: Replace a compromised pool": "test/kube.TestPool",

	"docs/discovery.md: sh":           "test/kube.TestDiscoveryPage",
	"docs/discovery.md: yaml":         "test/kube.TestDiscoveryPage",
	"docs/enforcing.md: sh":           "test/kube.TestObserve",
	"docs/enforcing.md: yaml":         "test/kube.TestObserve",
	"docs/external-signer.md: go":     "test/house.TestLibraryPage",
	"docs/external-signer.md: sh":     "test/externalsigner.TestThereAndBack",
	"docs/external-signer.md: yaml":   "test/externalsigner.TestThereAndBack",
	"docs/getting-started.md: sh":     "test/kube.TestGettingStarted",
	"docs/getting-started.md: text":   "test/kube.TestGettingStarted",
	"docs/install.md: sh":             "test/kube.TestInstall",
	"docs/kinds-of-evidence.md: yaml": "kube/internal/settings.TestKindsPage",
	"docs/kinds-of-evidence.md: sh":   "kube/program/node.TestPasswordPage",
	"docs/kubeadm.md: sh":             "test/kube.TestKubeadm",
	"docs/kubeadm.md: yaml":           "kube/program/node.TestKubeadmPage",
	"docs/library.md: go":             "test/house.TestLibraryPage",
	"docs/monitoring.md: yaml":        "test/kube.TestAlerts",
	"docs/programs.md: sh":            "test/kube.TestPrograms",
	"docs/programs.md: yaml":          "test/kube.TestPrograms",
	"docs/static-policies.md: sh":     "test/kube.TestManifestWall",
	"docs/static-policies.md: text":   "test/kube.TestManifestWall",
	"docs/static-policies.md: yaml":   "test/kube.TestManifestWall",
	"docs/vendor-roots.md: sh":        "kube/program/node.TestVendorRootsPage",
	"docs/workloads.md: go":           "test/house.TestLibraryPage",
	"docs/workloads.md: sh":           "test/kube.TestWorkloadsPage",
	"docs/workloads.md: text":         "test/kube.TestTrace",
	"docs/workloads.md: yaml":         "test/kube.TestWorkloadsPage",

	"docs/protocol.md: asn1":                                          "test/house.TestProtocolPage",
	"docs/protocol.md: pem":                                           "test/vectors/generate.TestProtocolExample",
	"docs/protocol.md: text":                                          "test/vectors/generate.TestProtocolExample",
	"docs/protocol.md: text: Document (road document)":                "- a cloud's own form; vectors/python/replay_requests.py was written from it",
	"docs/protocol.md: text: EK certificate and credential (road ek)": "- formulas; a program that was written from them opens the worked example",

	"vectors/cloud/README.md: sh": "test/house.TestPageCommands",
}

// TestPageBlocks: each block of code of a page is held by a test, or is on the list above with the
// reason why not. A block that a generator writes is held by that: lint runs it.
func TestPageBlocks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"docs/*.md", "*.md", "*/*.md", "*/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	slices.Sort(pages)
	if pages = slices.Compact(pages); len(pages) < 20 {
		t.Fatalf("%d pages", len(pages))
	}
	used := make(map[string]bool)
	for _, page := range pages {
		none(t, blockProblems(t, ".", filepath.ToSlash(page), readFile(t, page), blocksOf, used))
	}
	for key := range blocksOf {
		if !used[key] {
			t.Errorf("%s: no such block", key)
		}
	}
	for _, block := range blocks(readFile(t, "README.md")) {
		for line := range strings.Lines(block.text) {
			if command, _, _ := strings.Cut(line, "  "); block.language == "sh" && block.heading == "Try it" && !strings.Contains(readFile(t, ".ci/run"), command) {
				t.Errorf("README.md: %s is no step of .ci/run", command)
			}
		}
	}
}

func TestPageBlocksBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"kube/a_test.go":  "package kube\n\nfunc TestPage(t *testing.T) { read(\"page.md\") }\n",
		"other/a_test.go": "package other\n\nfunc TestPage(t *testing.T) { read(\"other.md\") }\n",
	})
	held := map[string]string{"page.md: sh": "kube.TestPage", "page.md: text": "- a picture", "page.md: text: Other": "kube.TestGone", "page.md: go": "other.TestPage"}
	const fence = "```"
	problems := func(text string) []string {
		return blockProblems(t, root, "page.md", text, held, make(map[string]bool))
	}
	none(t, problems("# Title\n\n"+fence+"sh\n# Other\n"+fence+"\n\n"+fence+"text\npicture\n"+fence+"\n\n<!-- table: make generate -->\n"+fence+"go\n"+fence+"\n"))
	none(t, problems("1. An item\n\n   that goes on\n\nno block:\n    in a paragraph\n"))
	exactly(t, problems("\n"+fence+"yaml\na: 1\n"+fence+"\n"), "page.md: no test takes the block of yaml that begins with \"a: 1\"")
	exactly(t, problems("# Other\n\n"+fence+"text\na\n"+fence+"\n"), "page.md: no test kube.TestGone")
	exactly(t, problems("\n"+fence+"go\na\n"+fence+"\n"), "page.md: the tests in the folder of other.TestPage do not read the page")
	exactly(t, problems("\n"+fence+"\na\n"+fence+"\n"), "page.md: a block without a language")
	exactly(t, problems("\n"+fence+"sh\na\n"), "page.md: a block without an end")
	exactly(t, problems("text:\n\n    kubectl apply\n"), "page.md: an indented block, \"kubectl apply\": put it between fences")
}

// A codeBlock is one between fences, under a heading.
type codeBlock struct {
	heading, language, text string
	generated, open         bool
}

// blocks lists the blocks of code of a page. One that is indented has no language.
func blocks(page string) (all []codeBlock) {
	var heading, before string
	inside := false
	for line := range strings.Lines(page) {
		trimmed := strings.TrimSuffix(line, "\n")
		language, fence := strings.CutPrefix(strings.TrimSpace(trimmed), "```")
		last := len(all) - 1
		switch {
		case inside && fence:
			inside, all[last].open = false, false
		case inside:
			all[last].text += line
		case fence:
			inside = true
			all = append(all, codeBlock{heading: heading, language: language, generated: strings.HasSuffix(before, ": make generate -->"), open: true})
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimLeft(trimmed, "# ")
		case strings.HasPrefix(line, "    ") && before == "":
			all = append(all, codeBlock{heading: heading, language: "indented", text: strings.TrimSpace(line)})
		}
		before = trimmed
	}
	return all
}

// blockProblems lists the blocks of a page that nothing holds, and notes which entries it used.
func blockProblems(t *testing.T, root, page, text string, held map[string]string, used map[string]bool) (problems []string) {
	t.Helper()
	for _, block := range blocks(text) {
		first, _, _ := strings.Cut(block.text, "\n")
		key := page + ": " + block.language
		if _, ok := held[key+": "+block.heading]; ok {
			key += ": " + block.heading
		}
		by, ok := held[key]
		used[key] = true
		switch files, test, named := testFiles(t, root, by); {
		case block.open:
			problems = append(problems, page+": a block without an end")
		case block.language == "indented":
			problems = append(problems, fmt.Sprintf("%s: an indented block, %q: put it between fences", page, first))
		case block.generated:
		case block.language == "":
			problems = append(problems, page+": a block without a language")
		case !ok:
			problems = append(problems, fmt.Sprintf("%s: no test takes the block of %s that begins with %q", page, block.language, first))
		case strings.HasPrefix(by, "- "):
		case !named || !strings.Contains(files, "\nfunc "+test+"("):
			problems = append(problems, page+": no test "+by)
		case !strings.Contains(files, path.Base(page)):
			problems = append(problems, page+": the tests in the folder of "+by+" do not read the page")
		}
	}
	return problems
}
