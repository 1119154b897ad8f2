package kubectl

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
)

// runs runs the program without a cluster.
func runs(t *testing.T, line string) (status int, out, said string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	var stdout, stderr bytes.Buffer
	status = run(t.Context(), streams{new(bytes.Buffer), &stdout, &stderr}, nil, strings.Fields(line))
	return status, stdout.String(), stderr.String()
}

// TestHelp: each command describes itself and the flags that it takes, and no other, with status 0.
func TestHelp(t *testing.T) {
	for _, c := range commands() {
		for _, line := range []string{c.name + " --help", c.name + " x -h"} {
			status, out, said := runs(t, line)
			if one, many, found := strings.Cut(out, "\nusage: "); found && !strings.Contains(c.name, " ") { // followed by the form for many
				out = one
			} else if found && slices.Contains(flagCommands, c.name) {
				out = "usage: " + many
			}
			if status != 0 || said != "" || !strings.HasPrefix(out, "usage: kubectl nodeattest "+c.name) || !strings.Contains(out, c.help) {
				t.Errorf("%s: status %d\n%s%s", line, status, out, said)
			}
			for _, other := range commands() {
				for _, flag := range other.flags {
					if shown := strings.Contains(out, "--"+flag+" "); shown != contains(c.flags, flag) && flag != "server" {
						t.Errorf("%s: --%s is shown: %t\n%s", line, flag, shown, out)
					}
				}
			}
		}
	}
	for line, want := range map[string]string{
		"--help": "  trace CREDENTIAL", "cluster-info --help": "usage: kubectl nodeattest cluster-info verify", "other --help": "  trace CREDENTIAL", "cluster-info publish --help": "--server",
	} {
		if status, out, _ := runs(t, line); status != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: status %d\n%s", line, status, out)
		}
	}
}

func contains(all []string, one string) bool {
	return strings.Contains(" "+strings.Join(all, " ")+" ", " "+one+" ")
}

func TestVersion(t *testing.T) {
	if status, out, said := runs(t, "--version"); status != 0 || said != "" || !strings.HasPrefix(out, "kubectl-nodeattest ") || strings.Count(out, " ") != 1 {
		t.Errorf("status %d\n%s%s", status, out, said)
	}
}

// TestMissing: a missing flag is named before a cluster is asked; there is no cluster here.
func TestMissing(t *testing.T) {
	for line, want := range map[string]string{
		"approve node-1":              "or --existing-nodes",
		"approve node-2":              "takes NODE and --machine",
		"approve --machine strange:1": "approve takes NODE",
		"rebind node-1":               "takes --machine",
		"adopt node-1":                "takes --machine-uid or --provider-id",
		"adopt node-1 --machine-uid a --provider-id b":      "takes --machine-uid or --provider-id",
		"release node-1 --dry-run=client":                   "want none or server",
		"token node-1 --new --machine strange:1":            "takes one of --new and --machine",
		"cluster-info verify":                               "takes --token-file",
		"cluster-info publish --ca x":                       "takes --server and --ca",
		"cluster-info publish --server https://127.0.0.1:1": "takes --server and --ca",
		"trace X509SHA256=00":                               "--audit-log",
		"nodes -o yaml":                                     "want json, wide or name",
		"observed --output=\x1b[2J":                         `"\x1b[2J"`,
		"nodes --exit-code":                                 "takes no --exit-code",
		"approve node-1 --machine strange:1 --force":        "takes no --force",
		"approve node-1 --machine strange:1 --yes":          "approve takes no --yes",
		"approve node-1 --machine m --existing-nodes":       "approve --existing-nodes takes no --machine",
		"approve --existing-nodes --existing-node":          "approve --existing-nodes takes no --existing-node;",
		"approve --existing-nodes --without-inventory":      "approve --existing-nodes takes no --without-inventory",
		"approve node-1 --existing-nodes=false":             "approve takes no --existing-nodes",
		"approve --yes":                                     "approve takes NODE",
		"pool shut":                                         "pool shut takes NAME",
		"pool open a b":                                     "pool open takes NAME",
		"pool close a":                                      `unknown command "pool close"`,
		"pool":                                              `unknown command "pool"`,
		"release --gone node-1":                             "release --gone takes nothing",
		"release --gone --machine strange:1":                "release --gone takes no --machine",
		"release node-1 --yes":                              "release takes no --yes",
		"pending --gone":                                    "pending takes no --gone",
		"pending --existing-nodes":                          "pending takes no --existing-nodes",
		"measurements":                                      "measurements takes NODE",
		"measurements node-1 node-2":                        "measurements takes NODE",
		"measurements diff":                                 "measurements diff takes NODE [NODE]",
		"measurements node-1 --exit-code":                   "measurements takes no --exit-code",
		"measurements export -o json":                       "measurements export takes no --output",
		"measurements export --pcrs x":                      "invalid argument",
		"nodes --pcrs 0":                                    "nodes takes no --pcrs",
	} {
		if status, out, said := runs(t, line); status != 2 || out != "" || !strings.Contains(said, want) || strings.Contains(said, "configuration") {
			t.Errorf("%s: status %d, want %q\n%s%s", line, status, want, out, said)
		}
	}
	if status, _, said := runs(t, "nodes"); status != 1 || !strings.Contains(said, "configuration") {
		t.Errorf("without a cluster: status %d\n%s", status, said)
	}
}

// TestRebindAsInventory: the new machine is held against the inventory, as are the UID and the provider ID
// that the record keeps. --force goes on, and says what differs.
func TestRebindAsInventory(t *testing.T) {
	const entry = "machines: [{nodeName: node-1, uid: uid-1, providerID: 'sim://a/1'}]\n"
	for name, row := range map[string]struct {
		inventory, uid, id string
		without            bool
		want               string // the difference
	}{
		"as it is":                       {inventory: entry, uid: "uid-1", id: "sim://a/1"},
		"the inventory has no ID":        {inventory: "machines: [{nodeName: node-1, uid: uid-1}]\n", uid: "uid-1", id: "sim://a/1"},
		"the record has no ID":           {inventory: entry, uid: "uid-1"},
		"it has the new machine":         {inventory: "machines: [{nodeName: node-1, uid: uid-1, identity: 'strange:3'}]\n", uid: "uid-1"},
		"another UID":                    {inventory: entry, uid: "uid-2", id: "sim://a/1", want: "the inventory has UID uid-1 for node node-1, not uid-2"},
		"a UID that the inventory lacks": {inventory: "machines: [{nodeName: node-1}]\n", uid: "uid-2", want: "the inventory has UID inventory:node-1 for node node-1, not uid-2"},
		"the record has no UID":          {inventory: entry, want: "and its record has none"},
		"another provider ID":            {inventory: entry, uid: "uid-1", id: "sim://a/2", want: "sim://a/2"},
		"it has the old machine":         {inventory: "machines: [{nodeName: node-1, identity: 'strange:1'}]\n", want: "the inventory has machine strange:1 for node node-1, not strange:3"},
		"it has another kind":            {inventory: "machines: [{nodeName: node-1, kind: tpm}]\n", want: "has kind tpm in the inventory"},
		"it has not the node":            {inventory: "machines: [{nodeName: node-2}]\n", want: "the inventory has no node node-1"},
		"no inventory":                   {want: "the inventory cannot be read"},
		"no inventory, as is known":      {without: true},
	} {
		for _, force := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				o := operates(t, row.inventory)
				o.machine, o.replaces, o.withoutInventory, o.force = "strange:3", honest, row.without, force
				recorded(t, o.plugin, membership.Scope{Provider: "strange", Road: attest.RoadDocument},
					membership.Claim{NodeName: "node-1", Machine: honest, MachineUID: row.uid, ProviderID: row.id}, o.now(), false)
				said := ""
				if err := o.rebind(t.Context(), "node-1"); err != nil {
					said = err.Error()
				}
				if refused := said != ""; refused != (row.want != "" && !force) || !strings.Contains(said+o.err.String(), row.want) || strings.Contains(o.err.String(), "because of --force") != (force && row.want != "") {
					t.Errorf("force %t: got %q, %q, want %q", force, said, &o.err, row.want)
				}
				if want := map[bool]string{true: "strange:3", false: honest}[said == ""]; o.recordOf(t).Spec.Machine != want {
					t.Errorf("force %t: recorded %+v", force, o.recordOf(t).Spec)
				}
			})
		}
	}
}
