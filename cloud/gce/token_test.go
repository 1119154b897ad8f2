package gce_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

const audience = "https://example.com/once/17"

func TestVerifyToken(t *testing.T) {
	cloud := google(t)
	token := testkit.Must(cloud.Token(instance(1), audience))
	d := testkit.Must(gce.VerifyToken(t.Context(), token, audience, trust(t, cloud), now))
	if d.Instance != instance(1) || d.Machine() != "gce:example-project/4711000000000000001" || d.Audience != audience ||
		d.IssuedAt != now || d.Expires != now.Add(time.Hour) || d.Created != now.Add(-24*time.Hour) || d.Licenses != nil ||
		d.Subject != "104718209461873290581" || d.Email != "123456789012-compute@developer.gserviceaccount.com" ||
		d.ProviderID() != "gce://example-project/europe-west1-b/vm-1" {
		t.Errorf("%+v", d)
	}
	if _, err := attest.ParseIdentity(string(d.Machine())); err != nil {
		t.Error(err)
	}
}

// Everything that Google might sign and that is not a token of a machine of ours, and
// everything that another signer might.
func TestClaims(t *testing.T) {
	cloud := google(t)
	good := testkit.Must(cloud.Token(instance(1), audience))
	in := func(claims map[string]any) map[string]any {
		return claims["google"].(map[string]any)["compute_engine"].(map[string]any)
	}
	set := func(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }
	engine := func(name string, v any) func(map[string]any) { return func(c map[string]any) { in(c)[name] = v } }
	none := func(name string) func(map[string]any) { return func(c map[string]any) { delete(c, name) } }
	noEngine := func(name string) func(map[string]any) { return func(c map[string]any) { delete(in(c), name) } }
	for name, c := range map[string]struct {
		change func(map[string]any)
		want   attest.Check // "" for a token that is good
	}{
		"as it is":                           {func(map[string]any) {}, ""},
		"licences":                           {engine("license_id", []string{"1", "2"}), ""},
		"a further claim":                    {set("nonce", 1), ""},
		"a further claim about the machine":  {engine("further", nil), ""},
		"no e-mail":                          {none("email"), ""},
		"another audience":                   {set("aud", audience+"8"), refusal.Check("gce-audience")},
		"the audience in another case":       {set("aud", strings.ToUpper(audience)), refusal.Check("gce-audience")},
		"no audience":                        {none("aud"), refusal.Check("gce-claims")},
		"a list of audiences":                {set("aud", []string{audience}), refusal.Check("gce-claims")},
		"the audience null":                  {set("aud", nil), refusal.Check("gce-claims")},
		"another issuer":                     {set("iss", "https://accounts.google.com/"), refusal.Check("gce-issuer")},
		"Google's other issuer":              {set("iss", "accounts.google.com"), refusal.Check("gce-issuer")},
		"a service account as the issuer":    {set("iss", "a@p.iam.gserviceaccount.com"), refusal.Check("gce-issuer")},
		"no issuer":                          {none("iss"), refusal.Check("gce-claims")},
		"no subject":                         {none("sub"), refusal.Check("gce-claims")},
		"no party":                           {none("azp"), refusal.Check("gce-claims")},
		"another party":                      {set("azp", "1"), refusal.Check("gce-claims")},
		"no beginning":                       {none("iat"), refusal.Check("gce-claims")},
		"no end":                             {none("exp"), refusal.Check("gce-claims")},
		"the end a text":                     {set("exp", "1800003600"), refusal.Check("gce-claims")},
		"the end with a fraction":            {set("exp", 1800003600.5), refusal.Check("gce-claims")},
		"the end negative":                   {set("exp", -1), refusal.Check("gce-claims")},
		"the end over 53 bits":               {set("exp", int64(1)<<53), refusal.Check("gce-claims")},
		"the end of 53 bits":                 {set("exp", int64(1)<<53-1), refusal.Check("gce-lifetime")},
		"a second too long":                  {set("exp", now.Unix()+3601), refusal.Check("gce-lifetime")},
		"no lifetime":                        {set("exp", now.Unix()), refusal.Check("gce-lifetime")},
		"ended":                              {func(c map[string]any) { c["iat"], c["exp"] = now.Unix()-3600, now.Unix() }, refusal.Check("gce-expired")},
		"about to end":                       {func(c map[string]any) { c["iat"], c["exp"] = now.Unix()-3599, now.Unix()+1 }, ""},
		"a minute ahead":                     {func(c map[string]any) { c["iat"], c["exp"] = now.Unix()+60, now.Unix()+3660 }, ""},
		"more than a minute ahead":           {func(c map[string]any) { c["iat"], c["exp"] = now.Unix()+61, now.Unix()+3661 }, refusal.Check("gce-future")},
		"not before a minute from now":       {set("nbf", now.Unix()+60), ""},
		"not before a later time":            {set("nbf", now.Unix()+61), refusal.Check("gce-future")},
		"not before a text":                  {set("nbf", "1800000000"), refusal.Check("gce-claims")},
		"not before null":                    {set("nbf", nil), refusal.Check("gce-claims")},
		"another project":                    {engine("project_id", "evil-project"), refusal.Check("gce-project")},
		"the project in another case":        {engine("project_id", "Example-Project"), refusal.Check("gce-project")},
		"no word of Google's":                {none("google"), refusal.Check("gce-machine")},
		"an organisation alone":              {set("google", map[string]any{"organization_number": 1}), refusal.Check("gce-machine")},
		"Google's word null":                 {set("google", nil), refusal.Check("gce-claims")},
		"the machine null":                   {func(c map[string]any) { c["google"] = map[string]any{"compute_engine": nil} }, refusal.Check("gce-claims")},
		"the machine empty":                  {func(c map[string]any) { c["google"] = map[string]any{"compute_engine": map[string]any{}} }, refusal.Check("gce-machine")},
		"the machine at the top":             {func(c map[string]any) { c["compute_engine"] = in(c); delete(c, "google") }, refusal.Check("gce-machine")},
		"no instance ID":                     {noEngine("instance_id"), refusal.Check("gce-machine")},
		"no instance name":                   {noEngine("instance_name"), refusal.Check("gce-machine")},
		"no project":                         {noEngine("project_id"), refusal.Check("gce-machine")},
		"no project number":                  {noEngine("project_number"), refusal.Check("gce-machine")},
		"no zone":                            {noEngine("zone"), refusal.Check("gce-machine")},
		"no time of creation":                {noEngine("instance_creation_timestamp"), refusal.Check("gce-machine")},
		"the instance ID a number":           {engine("instance_id", 4711), refusal.Check("gce-claims")},
		"the instance ID with a zero before": {engine("instance_id", "04711"), refusal.Check("gce-machine")},
		"the instance ID with a sign":        {engine("instance_id", "+4711"), refusal.Check("gce-machine")},
		"the instance ID zero":               {engine("instance_id", "0"), refusal.Check("gce-machine")},
		"the instance ID over 64 bits":       {engine("instance_id", "18446744073709551616"), refusal.Check("gce-machine")},
		"the instance ID empty":              {engine("instance_id", ""), refusal.Check("gce-machine")},
		"the project number zero":            {engine("project_number", 0), refusal.Check("gce-machine")},
		"the project number a text":          {engine("project_number", "1"), refusal.Check("gce-claims")},
		"the project with a slash":           {engine("project_id", "example-project/4711"), refusal.Check("gce-machine")},
		"the project empty":                  {engine("project_id", ""), refusal.Check("gce-machine")},
		"the name with a space":              {engine("instance_name", "vm 1"), refusal.Check("gce-machine")},
		"the zone with a line end":           {engine("zone", "a\n"), refusal.Check("gce-machine")},
	} {
		t.Run(name, func(t *testing.T) {
			claims := payload(t, good)
			c.change(claims)
			token := testkit.Must(cloud.Sign(marshal(t, claims)))
			d, err := gce.VerifyToken(t.Context(), token, audience, trust(t, cloud), now)
			expect(t, d, err, c.want)
			keep(t, "claims "+name, token, c.want)
		})
	}
}

// expect expects a refusal of a check, and for "" none.
func expect(t *testing.T, d *gce.Details, err error, want attest.Check) {
	t.Helper()
	if want == "" && (err != nil || d == nil) || want != "" && (!errors.Is(err, want) || d != nil || errors.Is(err, refusal.ErrRetry)) {
		t.Errorf("got %+v, %v, want %q", d, err, want)
	}
}

// Payloads that are no object of claims, or that have more than one reading.
func TestPayloads(t *testing.T) {
	cloud := google(t)
	good := testkit.Must(cloud.Token(instance(1), audience))
	text := string(marshal(t, payload(t, good)))
	for name, p := range map[string]string{
		"nothing":             "",
		"a list":              "[" + text + "]",
		"trailing bytes":      text + "x",
		"two objects":         text + text,
		"the audience twice":  `{"aud":"` + audience + `",` + text[1:],
		"in two cases":        `{"AUD":"x",` + text[1:],
		"Google's word twice": strings.Replace(text, `"google":`, `"google":{},"google":`, 1),
		"not UTF-8":           strings.Replace(text, "vm-1", "vm-\xff", 1),
		"deep":                `{"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "," + text[1:],
	} {
		t.Run(name, func(t *testing.T) {
			token := testkit.Must(cloud.Sign([]byte(p)))
			d, err := gce.VerifyToken(t.Context(), token, audience, trust(t, cloud), now)
			expect(t, d, err, refusal.Check("gce-claims"))
			keep(t, "payload "+name, token, refusal.Check("gce-claims"))
		})
	}
}

// Tokens that Google did not sign, or not as they are shown.
func TestForgedTokens(t *testing.T) {
	cloud, other := google(t), cloudtest.NewGCE(t)
	other.Now = cloud.Now
	good := testkit.Must(cloud.Token(instance(1), audience))
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	raw := base64.RawURLEncoding
	header := func(text string) string { return raw.EncodeToString([]byte(text)) + "." + body }
	kid := cloud.Keys()[0].KeyID()
	claims := payload(t, good)
	claims["google"].(map[string]any)["compute_engine"].(map[string]any)["instance_id"] = "666"
	evil := raw.EncodeToString(marshal(t, claims))
	keys := trust(t, cloud)

	signed := func(signer *jws.CryptoSigner, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		s := testkit.Must(signer.Sign(t.Context(), marshal(t, claims)))
		return s.Token(marshal(t, claims))
	}
	key := testkit.Must(rsa.GenerateKey(rand.Reader, 2048))
	// A configuration that trusts a key of another algorithm, too.
	es256 := testkit.Must(openES256())
	keys.Keys = keySet(t, append(cloud.Keys(), es256.Key())...)

	for name, c := range map[string]struct {
		token string
		want  attest.Check
	}{
		"as it is":                          {good, ""},
		"another machine's claims":          {head + "." + evil + "." + signature, jws.Check("jws-signature")},
		"the signature of another token":    {head + "." + body + "." + raw.EncodeToString(make([]byte, 256)), jws.Check("jws-signature")},
		"no signature":                      {head + "." + body + ".", jws.Check("jws-signature-size")},
		"half a signature":                  {good[:len(good)-170], jws.Check("jws-signature-size")},
		"the unsigned part alone":           {head + "." + body, jws.Check("form")},
		unsignedPart:                        {good + "." + evil, jws.Check("form")},
		"an unsigned token in front":        {head + "." + evil + "." + good, jws.Check("form")},
		"alg none":                          {header(`{"alg":"none","kid":"`+kid+`","typ":"JWT"}`) + ".", jws.CheckAlgorithm},
		"alg in another case":               {header(`{"alg":"None","kid":"`+kid+`","typ":"JWT"}`) + ".", jws.CheckAlgorithm},
		"alg HS256 under the public key":    {header(`{"alg":"HS256","kid":"`+kid+`","typ":"JWT"}`) + "." + signature, jws.CheckAlgorithm},
		"alg PS256":                         {header(`{"alg":"PS256","kid":"`+kid+`","typ":"JWT"}`) + "." + signature, jws.CheckAlgorithm},
		"alg RS512":                         {header(`{"alg":"RS512","kid":"`+kid+`","typ":"JWT"}`) + "." + signature, jws.CheckAlgorithm},
		"alg twice":                         {header(`{"alg":"RS256","alg":"none","kid":"`+kid+`","typ":"JWT"}`) + "." + signature, jws.CheckHeader},
		"ES256 by a key of the set":         {signed(es256, nil), jws.CheckAlgorithm},
		"no kid":                            {header(`{"alg":"RS256","typ":"JWT"}`) + "." + signature, jws.CheckKeyID},
		"an unknown kid":                    {header(`{"alg":"RS256","kid":"x","typ":"JWT"}`) + "." + signature, jws.CheckKeyID},
		"the kid of a key of another kind":  {header(`{"alg":"RS256","kid":"es","typ":"JWT"}`) + "." + signature, jws.CheckAlgorithm},
		"a service account's own key":       {signed(jws.NewSigner(key, jws.SignerOptions{KeyID: "own", Type: jws.TypeJWT})), jws.CheckKeyID},
		"a key of one's own, Google's kid":  {signed(jws.NewSigner(key, jws.SignerOptions{KeyID: kid, Type: jws.TypeJWT})), jws.Check("jws-signature")},
		"a key that the token brings":       {header(`{"alg":"RS256","jwk":{},"kid":"`+kid+`","typ":"JWT"}`) + "." + signature, jws.CheckHeader},
		"no typ":                            {signed(jws.NewSigner(key, jws.SignerOptions{KeyID: kid})), jws.CheckHeader},
		"typ at+jwt":                        {header(`{"alg":"RS256","kid":"`+kid+`","typ":"at+jwt"}`) + "." + signature, jws.CheckHeader},
		"padding":                           {head + "." + body + "=." + signature, jws.Check("base64url")},
		"a line end":                        {good + "\n", jws.Check("base64url")},
		"nothing":                           {"", refusal.Check("gce-token-size")},
		"as long as can be":                 {head + "." + strings.Repeat("A", gce.MaxTokenSize-len(head)-len(signature)-2) + "." + signature, refusal.Check("gce-claims")},
		"a byte too long":                   {head + "." + strings.Repeat("A", gce.MaxTokenSize-len(head)-len(signature)-1) + "." + signature, refusal.Check("gce-token-size")},
		"nine kibibytes":                    {strings.Repeat("A.", 9<<9), refusal.Check("gce-token-size")},
		"another cloud with the same claim": {tokenOf(t, other.Token, audience), jws.CheckKeyID},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := gce.VerifyToken(t.Context(), c.token, audience, keys, now)
			expect(t, d, err, c.want)
			keep(t, "token "+name, c.token, c.want)
			if err != nil && (strings.Contains(err.Error(), signature) || strings.Contains(err.Error(), body)) {
				t.Errorf("the token is in %v", err)
			}
		})
	}
}

func tokenOf(t *testing.T, token func(oid.GCEInstance, string) (string, error), audience string) string {
	t.Helper()
	return testkit.Must(token(instance(1), audience))
}

// A huge token is refused before it is looked at.
func TestHugeToken(t *testing.T) {
	d, err := gce.VerifyToken(t.Context(), strings.Repeat("A.", 1<<19), audience, trust(t, google(t)), now)
	expect(t, d, err, refusal.Check("gce-token-size"))
}

// Keys that cannot be had now decide nothing.
func TestKeysOutOfReach(t *testing.T) {
	cloud := google(t)
	token := tokenOf(t, cloud.Token, audience)
	c := trust(t, cloud)
	c.Keys = deadKeys{}
	if _, err := gce.VerifyToken(t.Context(), token, audience, c, now); !errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
}

type deadKeys struct{}

func (deadKeys) Keys(context.Context, string) ([]*jws.Key, error) {
	return nil, refusal.Retry(errors.New("no network"))
}

func TestConfig(t *testing.T) {
	cloud := google(t)
	token, good := tokenOf(t, cloud.Token, audience), trust(t, cloud)
	for name, c := range map[string]gce.KindConfig{
		"nothing":             {},
		"no projects":         {Keys: good.Keys},
		"all projects":        {Keys: good.Keys, Projects: []string{"*"}},
		"a project and blank": {Keys: good.Keys, Projects: []string{project + " "}},
		"an empty project":    {Keys: good.Keys, Projects: []string{project, ""}},
		"no keys":             {Projects: good.Projects},
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := gce.NewKind(c); !errors.Is(err, refusal.CheckConfig) || k != nil {
				t.Errorf("%s: %v", name, err)
			}
			if d, err := gce.VerifyToken(t.Context(), token, audience, c, now); !errors.Is(err, refusal.CheckConfig) || d != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if d, err := gce.VerifyToken(t.Context(), token, "", good, now); !errors.Is(err, refusal.CheckConfig) || d != nil {
		t.Error(err)
	}
	projects := []string{project}
	c := gce.KindConfig{Keys: good.Keys, Projects: projects}
	if _, err := gce.NewKind(c); err != nil {
		t.Error(err)
	}
}

// corpus is the folder of recorded tokens.
func corpus(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set")
	}
	return filepath.Join(dir, "cloud", "gce")
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	return testkit.Must(os.ReadFile(path))
}

// TestRecorded verifies tokens that Google signed, at their own time.
func TestRecorded(t *testing.T) {
	dir := corpus(t)
	samples := []struct {
		name, audience, project, machine string
		at                               time.Time
	}{
		{"2019-smallstep", "gcp:Kops Provisioner", "kops-dev-2019-01", "gce:kops-dev-2019-01/3015378661047007286", time.Date(2019, 4, 17, 23, 37, 48, 0, time.UTC)},
		{"2021-rhsm", "https://subscription.rhsm.redhat.com:443/subscription", "fair-kingdom-308514", "gce:fair-kingdom-308514/2589221140676718026", time.Date(2021, 3, 24, 14, 30, 23, 0, time.UTC)},
		{"2025-agentcommunication", "agentcommunication.googleapis.com", "weipengpanda-project", "gce:weipengpanda-project/2875949485074006138", time.Date(2025, 2, 12, 1, 46, 31, 0, time.UTC)},
	}
	keys := map[string]jws.KeySet{}
	for _, s := range samples {
		parsed := testkit.Must(jws.ParseJWKS(readFile(t, filepath.Join(dir, s.name+".jwks.json"))))
		keys[s.name] = keySet(t, parsed...)
	}
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			token := strings.TrimSpace(string(readFile(t, filepath.Join(dir, s.name+".jwt"))))
			c := gce.KindConfig{Keys: keys[s.name], Projects: []string{s.project}}
			d, err := gce.VerifyToken(t.Context(), token, s.audience, c, s.at)
			if err != nil || string(d.Machine()) != s.machine || d.IssuedAt != s.at || (len(d.Licenses) == 1) != (s.name == "2021-rhsm") {
				t.Fatalf("%+v, %v", d, err)
			}
			verify := func(audience string, c gce.KindConfig, at time.Time) error {
				_, err := gce.VerifyToken(t.Context(), token, audience, c, at)
				return err
			}
			if err := verify(s.audience, c, s.at.Add(time.Hour-time.Second)); err != nil {
				t.Error(err)
			}
			if err := verify(s.audience, c, s.at.Add(time.Hour)); !errors.Is(err, refusal.Check("gce-expired")) {
				t.Error(err)
			}
			if err := verify(s.audience, c, time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)); !errors.Is(err, refusal.Check("gce-expired")) {
				t.Error(err)
			}
			if err := verify(s.audience, c, s.at.Add(-61*time.Second)); !errors.Is(err, refusal.Check("gce-future")) {
				t.Error(err)
			}
			if err := verify(audienceOf(make([]byte, 32)), c, s.at); !errors.Is(err, refusal.Check("gce-audience")) {
				t.Error(err)
			}
			if err := verify(s.audience, gce.KindConfig{Keys: c.Keys, Projects: []string{project}}, s.at); !errors.Is(err, refusal.Check("gce-project")) {
				t.Error(err)
			}
			for other, set := range keys {
				if err := verify(s.audience, gce.KindConfig{Keys: set, Projects: c.Projects}, s.at); other != s.name && !errors.Is(err, jws.CheckKeyID) {
					t.Errorf("keys of %s: %v", other, err)
				}
			}
		})
	}
}

// What people write for a machine or a project, which no token names, is refused at the start.
func TestListedInstances(t *testing.T) {
	good := trust(t, google(t))
	kind := testkit.Must(gce.NewKind(good))
	kindtest.Lines(t, kind, map[string]string{
		"gce:example-project/4711000000000000001 node-1 provider=gce":     "",
		"gce:example.com:project/4711000000000000001 node-1 provider=gce": "",
		"gce:123456789012/4711000000000000001 node-1 provider=gce":        "not its number",
		"gce:Example-Project/4711000000000000001 node-1 provider=gce":     "<project ID",
		"gce:example-project/pool-1-aaaa node-1 provider=gce":             "<instance ID>",
		"gce:example-project/0 node-1 provider=gce":                       "<instance ID>",
		"gce:example-project/4711000000000000001 node-1":                  "provider=gce",
	})
	for _, project := range []string{"123456789012", "Example-Project", "projects/example-project"} {
		if _, err := gce.NewKind(gce.KindConfig{Keys: good.Keys, Projects: []string{project}}); !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), "numbers") {
			t.Errorf("%s: %v", project, err)
		}
	}
}
