package bootstraptoken

import (
	"bytes"
	"encoding/json"
	"time"

	"go.yaml.in/yaml/v3"
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

// A viewObject has kubeadm's JSON members in kubeadm's order, and YAML's in that of the
// alphabet.
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
// secret, indented, one behind the other as kubeadm prints them: there is no list around
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
		o := v.object(s)
		text, err := marshalYAML(map[string]any{
			"apiVersion": o.APIVersion, "kind": o.Kind, "token": o.Token, "description": o.Description,
			"expires": o.Expires, "usages": o.Usages, "groups": o.Groups,
		})
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

// marshalYAML writes a map as Kubernetes' tools do: two spaces, lists not indented,
// without the members that are empty.
func marshalYAML(m map[string]any) ([]byte, error) {
	for name, value := range m {
		switch value := value.(type) {
		case string:
			if value == "" {
				delete(m, name)
			}
		case []string:
			if len(value) == 0 {
				delete(m, name)
			}
		}
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(m); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}
