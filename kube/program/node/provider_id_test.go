package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// told is the provider ID that a node with a file claims, or "".
func told(t *testing.T, providerID, evidence string, kinds ...Evidence) (string, error) {
	t.Helper()
	s, err := parseSettings([]byte("apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nnodeName: node-1\nproviderID: " + providerID + "\nevidence: {" + evidence + "}\n"))
	if err != nil {
		return "", err
	}
	c, err := s.config(kinds)
	if err != nil || c.ProviderID == nil {
		return "", err
	}
	id, err := c.ProviderID(t.Context())
	if err == nil && id == "" {
		t.Error("an empty ID is no error")
	}
	return id, err
}

// TestProviderID: an ID is written down, or the machine is asked for it: its cloud, or a file on it.
func TestProviderID(t *testing.T) {
	const subscription = "8a205152-b25a-417f-a676-80465535a6c9"
	google := cloudtest.NewGCE(t).Serve(oid.GCEInstance{ProjectID: "example-project", Zone: "europe-west1-b", InstanceName: "vm-1"})
	azure := cloudtest.NewAzure(t, cloudtest.AzureOptions{}).Serve(cloudtest.AzureMachine{SubscriptionID: subscription})
	ec2 := cloudtest.NewEC2(t, "eu-west-1").Serve(cloudtest.EC2Machine{AccountID: "123456789012", Region: "eu-west-1", InstanceID: "i-0123456789abcdef0"})
	file := filepath.Join(t.TempDir(), "provider-id")
	testkit.MustDo(os.WriteFile(file, []byte("metal://rack-1/slot-7\n"), 0o600))
	rack := Evidence{Name: "rack", Open: func(func(any) error) (authenticator.Evidence, error) {
		return &identifiedEvidence{authenticator.EvidenceOf("rack", nil), rack7{}}, nil
	}}
	for name, c := range map[string]struct{ providerID, evidence, want string }{
		"nothing":          {`""`, "tpm: {}", ""},
		"not even that":    {"", "tpm: {}", ""},
		"an ID":            {"metal://rack-1/7", "tpm: {}", "metal://rack-1/7"},
		"of other letters": {`"metal://a \u0142"`, "tpm: {}", "metal://a \u0142"},
		"of Google's":      {"auto", "gce: {metadataURL: '" + google.URL + "'}", "gce://example-project/europe-west1-b/vm-1"},
		"of Azure's":       {"auto", "azure: {metadataURL: '" + azure.URL + "'}", "azure:///subscriptions/" + subscription + "/resourceGroups/example-rg/providers/Microsoft.Compute/virtualMachines/vm-1"},
		"of AWS'":          {"auto", "nitro: {tool: none, metadataURL: '" + ec2.URL + "'}", "aws:///eu-west-1a/i-0123456789abcdef0"},
		"of EC2's":         {"auto", "ec2: {metadataURL: '" + ec2.URL + "'}", "aws:///eu-west-1a/i-0123456789abcdef0"},
		"of a kind added":  {"auto", "rack: {}", "rack://7"},
		"in quotes":        {`"auto"`, "rack: {}", "rack://7"},
		"in a file":        {"{file: " + file + "}", "tpm: {}", "metal://rack-1/slot-7"},
		"cloud, and file":  {"{file: " + file + "}", "gce: {}", "metal://rack-1/slot-7"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := told(t, c.providerID, c.evidence, rack); err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
	for name, server := range map[string]*cloudtest.Server{"gce: {timeout: 100ms, ": google, "azure: {timeout: 100ms, ": azure, "nitro: {timeout: 100ms, ": ec2} {
		server.Close()
		if got, err := told(t, "auto", name+"metadataURL: '"+server.URL+"'}"); got != "" || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%s is away: got %q, %v, want to try again", name, got, err)
		}
	}
}

// What no file can mean is an error of the start, which names the field.
func TestProviderIDRefused(t *testing.T) {
	for name, c := range map[string]struct{ providerID, evidence string }{
		"a number":             {"7", "gce: {}"},
		"a truth value":        {"yes", "gce: {}"},
		"a list":               {"[auto]", "gce: {}"},
		"an object of nothing": {"{}", "gce: {}"},
		"an empty path":        {`{file: ""}`, "gce: {}"},
		"an unknown field":     {"{path: /x}", "gce: {}"},
		"two fields":           {"{file: /x, auto: true}", "gce: {}"},
		"a TPM, asked":         {"auto", "tpm: {}"},
		"nothing, asked":       {"auto", "none: {}}\nsignerName: cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure # "},
		"a line's end":         {`"aws:///a/i-1\n"`, "tpm: {}"},
		"a space in front":     {`" x"`, "tpm: {}"},
		"a NUL":                {`"x\0"`, "tpm: {}"},
		"longer than any":      {strings.Repeat("x", oid.MaxProviderIDSize+1), "tpm: {}"},
		"no URL":               {"auto", "nitro: {metadataURL: metadata}"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := told(t, c.providerID, c.evidence)
			if !errors.Is(err, refusal.CheckConfig) || got != "" {
				t.Fatalf("got %q, %v", got, err)
			}
			if !strings.Contains(err.Error(), "providerID") && name != "no URL" {
				t.Errorf("%v does not name the field", err)
			}
		})
	}
}

// A file is read for each certificate: an invalid ID is an error of that attempt.
func TestProviderIDFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "provider-id")
	ask := providerIDFile(path)
	for _, c := range []struct {
		text string
		want error
	}{
		{"", os.ErrNotExist}, // before it is written
		{"metal://1", nil},
		{"metal://2\n", nil},
		{"metal://" + strings.Repeat("x", oid.MaxProviderIDSize-8) + "\n", nil},
		{"metal", refusal.CheckConfig},
		{"vsphere://", refusal.CheckConfig},
		{"none", refusal.CheckConfig},
		{strings.Repeat("x", oid.MaxProviderIDSize+1), refusal.Check("provider-id-size")},
		{strings.Repeat("x", oid.MaxProviderIDSize+2), refusal.Check("file")},
		{"\n", refusal.Check("provider-id-size")},
		{"metal://1\n\n", refusal.Check("provider-id-text")},
		{"metal://1\r\n", refusal.Check("provider-id-text")},
		{"metal://1\nmetal://2\n", refusal.Check("provider-id-text")},
		{"metal://\x00", refusal.Check("provider-id-text")},
		{"metal://\xff", refusal.Check("provider-id-text")},
		{" metal://1", refusal.Check("provider-id-text")},
	} {
		if c.text != "" {
			testkit.MustDo(os.WriteFile(path, []byte(c.text), 0o600))
		}
		got, err := ask(t.Context())
		if !errors.Is(err, c.want) || err == nil && got != strings.TrimSuffix(c.text, "\n") {
			t.Errorf("%.20q: got %.20q, %v, want %v", c.text, got, err, c.want)
		}
		if err != nil && (got != "" || !strings.Contains(err.Error(), path) || !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\x00\n")) {
			t.Errorf("%.20q: got %q, %q", c.text, got, err)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil { // any user could choose the ID
		t.Fatal(err)
	}
	if got, err := ask(t.Context()); got != "" || !errors.Is(err, refusal.Check("file")) {
		t.Errorf("got %q, %v", got, err)
	}
}

// rack7 is a machine that knows its provider ID.
type rack7 struct{}

func (rack7) ProviderID(context.Context) (string, error) { return "rack://7", nil }
