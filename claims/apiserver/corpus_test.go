package apiserver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
)

// A claimsCase is one of Kubernetes' own cases for its validator.
type claimsCase struct {
	Name      string `json:"name"`
	Now       int64  `json:"now_unix"`
	Expiry    int64  `json:"expiry"`
	NotBefore int64  `json:"not_before"`
	Getter    struct {
		ServiceAccount, Secret, Pod, Node *struct {
			Metadata struct {
				Name, Namespace, UID string
				DeletionTimestamp    *time.Time `json:"deletionTimestamp"`
			}
		}
	} `json:"getter"`
	PrivateClaims map[string]json.RawMessage `json:"private_claims"`
	ExpectErr     string                     `json:"expect_err"`
}

// TestValidatorCorpus runs the cases of Kubernetes' own test (pkg/serviceaccount,
// TestValidatePrivateClaims) as whole tokens.
func TestValidatorCorpus(t *testing.T) {
	folder := os.Getenv("NODEATTEST_CORPUS")
	if folder == "" {
		t.Skip("NODEATTEST_CORPUS is not set")
	}
	text, err := os.ReadFile(filepath.Join(folder, "kubernetes", "serviceaccount_claims_cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var corpus struct {
		Cases []claimsCase `json:"validate_private_claims"`
	}
	if err := json.Unmarshal(text, &corpus); err != nil {
		t.Fatal(err)
	}
	if len(corpus.Cases) != 34 {
		t.Errorf("%d cases, want 34", len(corpus.Cases))
	}
	for _, tt := range corpus.Cases {
		t.Run(tt.Name, func(t *testing.T) {
			w := newWorld(t)
			w.now = time.Unix(tt.Now, 0)
			w.objects = tt.objects()
			_, err := w.kubernetes(t).Validate(t.Context(), w.sign(t, tt.payload(t)))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.ExpectErr {
				t.Errorf("got %q, want %q", got, tt.ExpectErr)
			}
		})
	}
}

// payload is the claim set; a time of 0 means none in these cases.
func (c *claimsCase) payload(t *testing.T) []byte {
	set := map[string]any{"iss": worldIssuer, "aud": []string{worldAudience}}
	for name, value := range c.PrivateClaims {
		set[name] = value
	}
	if c.Expiry != 0 {
		set["exp"] = c.Expiry
	}
	if c.NotBefore != 0 {
		set["nbf"] = c.NotBefore
	}
	payload, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func (c *claimsCase) objects() *worldObjects {
	objects := &worldObjects{}
	g := &c.Getter
	if o := g.ServiceAccount; o != nil {
		objects.account = &claims.Object{Name: o.Metadata.Name, UID: o.Metadata.UID, Deleted: o.Metadata.DeletionTimestamp}
	}
	if o := g.Secret; o != nil {
		objects.secret = &claims.Object{Name: o.Metadata.Name, UID: o.Metadata.UID, Deleted: o.Metadata.DeletionTimestamp}
	}
	if o := g.Pod; o != nil {
		objects.pod = &claims.Object{Name: o.Metadata.Name, UID: o.Metadata.UID, Deleted: o.Metadata.DeletionTimestamp}
	}
	if o := g.Node; o != nil {
		objects.node = &claims.Object{Name: o.Metadata.Name, UID: o.Metadata.UID, Deleted: o.Metadata.DeletionTimestamp}
	}
	return objects
}
