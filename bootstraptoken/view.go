package bootstraptoken

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/nodeattest/nodeattest/refusal"
)

// View writes tokens as `kubeadm token list` does: Table, JSON and YAML. The zero View
// hides the tokens' secrets, where kubeadm shows them.
type View struct {
	// InsecureShowSecrets writes whole tokens. Whoever reads the output, the terminal's
	// scrollback and the log of a build job among them, can join the cluster.
	InsecureShowSecrets bool
}

// The type of the objects that kubeadm prints for machines
// (cmd/kubeadm/app/apis/output/v1alpha3, types.go).
const (
	viewAPIVersion = "output.kubeadm.k8s.io/v1alpha3"
	viewKind       = "BootstrapToken"
)

// A viewObject has kubeadm's members in kubeadm's order.
type viewObject struct {
	Kind        string   `json:"kind"`
	APIVersion  string   `json:"apiVersion"`
	Token       string   `json:"token"`
	Description string   `json:"description,omitempty"`
	Expires     string   `json:"expires,omitempty"`
	Usages      []string `json:"usages,omitempty"`
	Groups      []string `json:"groups,omitempty"`
}

// JSON returns one BootstrapToken object of output.kubeadm.k8s.io/v1alpha3 for each
// secret, indented, one after the other as kubeadm prints them: there is no list around
// them. Times are UTC, in whole seconds. The result is empty for no secret.
func (v View) JSON(secrets []*Secret) ([]byte, error) {
	var out bytes.Buffer
	for _, s := range secrets {
		text, err := json.MarshalIndent(v.object(s), "", "    ")
		if err != nil {
			return nil, err
		}
		out.Write(text)
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// YAML returns the objects of [View.JSON] as YAML documents with "---" between them.
func (v View) YAML(secrets []*Secret) ([]byte, error) {
	var out bytes.Buffer
	for i, s := range secrets {
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := marshalYAML(v.object(s))
		if err != nil {
			return nil, err
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

func (v View) object(s *Secret) *viewObject {
	o := &viewObject{
		Kind: viewKind, APIVersion: viewAPIVersion, Token: v.token(s),
		Description: s.Description, Usages: s.Usages.names(), Groups: s.Groups,
	}
	if !s.Expiration.IsZero() {
		o.Expires = s.Expiration.UTC().Format(time.RFC3339)
	}
	return o
}

func (v View) token(s *Secret) string {
	if v.InsecureShowSecrets {
		return s.Token.Reveal()
	}
	return s.Token.String()
}

// names returns the usages in the words of the Secret's keys, sorted.
func (u Usages) names() (names []string) {
	if u.Authentication {
		names = append(names, "authentication")
	}
	if u.Signing {
		names = append(names, "signing")
	}
	return names
}

// marshalYAML writes what encoding/json writes of v, as Kubernetes' tools do: members in
// the order of the alphabet, two spaces, lists not indented.
func marshalYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(members); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

// Table returns what `kubeadm token list` prints (cmd/kubeadm/app/cmd/token.go,
// formatBootstrapToken): a header and a line for each secret, or nothing for none, with
// the columns TOKEN, TTL, EXPIRES, USAGES, DESCRIPTION and EXTRA GROUPS. The time to live
// is the one at now; "<invalid>" is an expired token, "<forever>" and "<never>" one
// without expiration, "<none>" what is not set.
//
// For one secret it is kubeadm's text byte for byte, but for its token unless secrets are
// shown. For several the columns stand below each other, where kubeadm aligns each line
// for itself. A character of the description that does not print, such as a line break or
// a terminal's escape, is written as Go writes it in a quoted string.
func (v View) Table(secrets []*Secret, now time.Time) string {
	if len(secrets) == 0 {
		return ""
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 10, 4, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
	for _, s := range secrets {
		ttl, expires := "<forever>", "<never>"
		if !s.Expiration.IsZero() {
			ttl, expires = shortDuration(s.Expiration.Sub(now)), s.Expiration.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%s\t%-9s\t%s\t%-22s\t%-56s\t%s\n", v.token(s), ttl, expires,
			orNone(strings.Join(s.Usages.names(), ",")), orNone(refusal.Escape(s.Description)), orNone(strings.Join(s.Groups, ",")))
	}
	_ = w.Flush() // neither can fail: a strings.Builder takes everything
	return out.String()
}

// shortDuration writes the largest unit that is not zero
// (k8s.io/apimachinery/pkg/util/duration, ShortHumanDuration).
func shortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= -2*time.Second:
		return "<invalid>"
	case d < 0:
		return "0s"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < day:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	case d < 365*day:
		return strconv.Itoa(int(d/day)) + "d"
	}
	return strconv.Itoa(int(d/(365*day))) + "y"
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
