package bootstraptoken

import (
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	for value, want := range map[string]string{
		"":                                    `""`,
		"abcdef":                              `"abcdef"`,
		"bootstrap-token-abcdef":              `"bootstrap-token-abcdef"`,
		SecretType:                            `"bootstrap.kubernetes.io/token"`,
		NodeGroup:                             `"system:bootstrappers:kubeadm:default-node-token"`,
		"2026-11-21T12:00:00Z":                `"2026-11-21T12:00:00Z"`,
		testSecret:                            "16 bytes",
		testToken:                             "23 bytes",
		"bootstrap-token-" + testToken:        "39 bytes",
		strings.ToUpper(testSecret):           "16 bytes",
		testSecret[1:]:                        "15 bytes",
		"a\n\x1b[31m":                         `"a\n\x1b[31m"`,
		strings.Repeat("a-", 50):              `"` + strings.Repeat("a-", 40) + `"... (100 bytes)`,
		strings.Repeat("a-", 50) + testSecret: "116 bytes",
	} {
		if got := describe([]byte(value)); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
