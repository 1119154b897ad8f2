package node

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestNoEvidence: a machine without evidence has one signer, and that signer has no other machines.
func TestNoEvidence(t *testing.T) {
	const good = "signerName: " + csr.SignerClientInsecure + "\nevidence: {none: {}}\n"
	for name, row := range map[string]struct {
		old, with string
		ok        bool
	}{
		"as it is":                   {"", "", true},
		"Kubernetes' own signer":     {csr.SignerClientInsecure, csr.SignerKubeAPIServerClientKubelet, false},
		"the signer of TPMs":         {csr.SignerClientInsecure, csr.SignerClientTPM, false},
		"the signer of a cloud":      {csr.SignerClientInsecure, "cluster.x-k8s.io/kube-apiserver-client-kubelet-gce", false},
		"the default signer":         {"signerName: " + csr.SignerClientInsecure + "\n", "", false},
		"a TPM":                      {"{none: {}}", "{tpm: {}}", false},
		"a document":                 {"{none: {}}", "{gce: {}}", false},
		"a TPM too":                  {"{none: {}}", "{none: {}, tpm: {}}", false},
		"an option":                  {"{none: {}}", "{none: {insecure: true}}", false},
		"nothing":                    {"{none: {}}", "{none: null}", false},
		"the section as a word":      {"{none: {}}", "none", false},
		"a recovery signer":          {"signerName", "recoverySigner: " + csr.SignerRecoveryTPM + "\nsignerName", false},
		"a serving certificate":      {"signerName", "serving: {dnsNames: [node-1]}\nsignerName", false},
		"attested serving":           {"signerName", "serving: {signerName: " + csr.SignerServingTPM + ", dnsNames: [node-1]}\nsignerName", false},
		"a lifetime":                 {"signerName", "lifetime: 24h\nsignerName", false},
		"what it says of itself":     {"signerName", "providerID: rack://1\nsignerName", true},
		"a folder of its own for it": {"signerName", "keyDir: @/keys\nsignerName", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := "apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nnodeName: node-1\nstateDir: @/state\n" + strings.Replace(good, row.old, row.with, 1)
			s, err := parseSettings([]byte(strings.ReplaceAll(text, "@", dir)))
			var c authenticator.Config
			if err == nil {
				c, err = s.config(nil)
			}
			if err == nil {
				_, err = authenticator.New(c)
			}
			if (err == nil) != row.ok || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
			if err == nil && (c.Kind != nil || c.Dir != filepath.Join(dir, "state")) {
				t.Errorf("%+v", c)
			}
		})
	}
}
