package bootstraptoken

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// kubeadmKubeconfig is what kubeadm 1.36 writes for a bundle.
func kubeadmKubeconfig(server string, bundle []byte) string {
	return "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString(bundle) +
		"\n    server: " + server + "\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n"
}

func TestClusterInfoMarshal(t *testing.T) {
	one, two := newTestCA(t, "one"), newTestCA(t, "two")
	for _, server := range []string{"https://10.0.0.1:6443", "https://[2001:db8::1]:6443", "https://api.example.com", "https://api.example.com/k8s/clusters/c-x1", "https://api.example.com:443/"} {
		c := info(server, one, two)
		got, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		want := kubeadmKubeconfig(server, append(one.pem(), two.pem()...))
		if string(got) != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		back, err := ParseKubeconfig(got)
		if err != nil || !back.Equal(c) || back.SystemRoots {
			t.Errorf("reads back as %+v, %v", back, err)
		}
	}
}

func TestClusterInfoOfSystemRoots(t *testing.T) {
	c := &ClusterInfo{Server: "https://api.example.com", SystemRoots: true}
	got, err := c.Marshal()
	if err != nil || bytes.Contains(got, []byte("certificate-authority")) {
		t.Fatalf("%s, %v", got, err)
	}
	if back, err := ParseKubeconfig(got); err != nil || !back.Equal(c) {
		t.Errorf("reads back as %+v, %v", back, err)
	}
}

func TestClusterInfoIsChecked(t *testing.T) {
	ca := newTestCA(t, "one")
	many := info("https://a", ca)
	for range maxCAs {
		many.CAs = append(many.CAs, ca.renewed(t).cert)
	}
	leaf, err := x509.ParseCertificate(ca.serving(t).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		c    *ClusterInfo
		want Check
	}{
		"nil":                  {nil, checkServer},
		"zero":                 {&ClusterInfo{}, checkServer},
		"no CA":                {&ClusterInfo{Server: "https://a"}, checkNoCA},
		"CA and system":        {&ClusterInfo{Server: "https://a", CAs: []*x509.Certificate{ca.cert}, SystemRoots: true}, checkNoCA},
		"no server":            {info("", ca), checkServer},
		"http":                 {info("http://a", ca), checkServerScheme},
		"user":                 {info("https://me@a", ca), checkCredentials},
		"nil CA":               {&ClusterInfo{Server: "https://a", CAs: []*x509.Certificate{nil}}, checkCA},
		"CA without bytes":     {&ClusterInfo{Server: "https://a", CAs: []*x509.Certificate{{IsCA: true, BasicConstraintsValid: true}}}, checkCA},
		"too many":             {many, checkCA},
		"a server certificate": {&ClusterInfo{Server: "https://a", CAs: []*x509.Certificate{leaf}}, checkCA},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := test.c.Marshal(); !errors.Is(err, test.want) {
				t.Errorf("%s: %s, %v, want %v", name, got, err, test.want)
			}
			if got, err := test.c.Data(); !errors.Is(err, test.want) {
				t.Errorf("%s: data %s, %v, want %v", name, got, err, test.want)
			}
		})
	}
}

func TestClusterInfoRoots(t *testing.T) {
	one, two := newTestCA(t, "one"), newTestCA(t, "two")
	roots, err := info("https://a", one, two).Roots()
	if err != nil {
		t.Fatal(err)
	}
	want := x509.NewCertPool()
	want.AddCert(one.cert)
	want.AddCert(two.cert)
	if !roots.Equal(want) {
		t.Error("other roots than the CAs")
	}
	for name, c := range map[string]*ClusterInfo{"nil": nil, "zero": {}, "server alone": {Server: "https://a"}} {
		t.Run(name, func(t *testing.T) {
			if roots, err := c.Roots(); !errors.Is(err, checkNoCA) || roots != nil {
				t.Errorf("%s: %v, %v, want %v", name, roots, err, checkNoCA)
			}
		})
	}
	if roots, err := (&ClusterInfo{CAs: []*x509.Certificate{one.cert, nil}}).Roots(); err == nil || roots != nil {
		t.Errorf("a CA that is nil: %v, %v", roots, err)
	}
	if roots, err := (&ClusterInfo{SystemRoots: true}).Roots(); (roots == nil) == (err == nil) {
		t.Errorf("system roots: %v, %v", roots, err)
	}
}

func TestClusterInfoEqual(t *testing.T) {
	one, two := newTestCA(t, "one"), newTestCA(t, "two")
	a := info("https://a", one, two)
	for name, b := range map[string]*ClusterInfo{
		"nil": nil, "another server": info("https://b", one, two), "another order": info("https://a", two, one),
		"fewer": info("https://a", one), "a renewed CA": info("https://a", one.renewed(t), two), "system": {Server: "https://a", SystemRoots: true},
	} {
		t.Run(name, func(t *testing.T) {
			if a.Equal(b) || b.Equal(a) {
				t.Errorf("%s: equal", name)
			}
		})
	}
	if (&ClusterInfo{Server: "https://a"}).Equal(&ClusterInfo{Server: "https://a", SystemRoots: true}) {
		t.Error("system roots equal none")
	}
	if !a.Equal(info("https://a", one, two)) {
		t.Error("not equal to the same")
	}
}

// Documents that are spelled otherwise and mean the same.
func TestParseKubeconfig(t *testing.T) {
	ca := newTestCA(t, "one")
	data := base64.StdEncoding.EncodeToString(ca.pem())
	want := info("https://api.example.com:6443", ca)
	good := kubeadmKubeconfig(want.Server, ca.pem())
	named := strings.NewReplacer(`name: ""`, "name: c", "contexts: null", "contexts:\n- name: x\n  context:\n    cluster: c\n    user: u\n    namespace: ns",
		`current-context: ""`, "current-context: x").Replace(good)
	for name, document := range map[string]string{
		"kubeadm 1.36":            good,
		"kubeadm before 1.34":     strings.Replace(good, "kind: Config\n", "kind: Config\npreferences: {}\n", 1),
		"empty lists":             strings.NewReplacer("contexts: null", "contexts: []", "users: null", "users: []").Replace(good),
		"without what is empty":   strings.NewReplacer("contexts: null\n", "", "users: null\n", "", "current-context: \"\"\n", "").Replace(good),
		"without a name":          strings.Replace(good, "  name: \"\"\n", "", 1),
		"a context of no cluster": strings.Replace(good, `current-context: ""`, "current-context: nowhere", 1),
		"a comment":               "# from the administrator\n" + good,
		"a document mark":         "---\n" + good,
		"named":                   named,
		"named, an empty user":    strings.Replace(named, "users: null", "users:\n- name: u\n  user: {}", 1),
		"a user of nothing":       strings.Replace(good, "users: null", "users:\n- name: u\n  user: null", 1),
		"not insecure":            strings.Replace(good, "    server:", "    insecure-skip-tls-verify: false\n    server:", 1),
		"empty members":           strings.Replace(good, "    server:", "    proxy-url: \"\"\n    tls-server-name: null\n    certificate-authority: \"\"\n    disable-compression: false\n    extensions: []\n    server:", 1),
		"empty extensions":        strings.Replace(named, "users: null", "users: null\nextensions: []", 1),
		"a context's extensions":  strings.Replace(named, "    namespace: ns", "    namespace: ns\n    extensions: null", 1),
		"a word in quotes":        strings.Replace(named, "namespace: ns", "namespace: \"yes\"", 1),
		"as large as may be":      good + strings.Repeat("#", maxKubeconfigSize-len(good)),
		"JSON": `{"kind":"Config","apiVersion":"v1","preferences":{},"clusters":[{"name":"","cluster":{"server":"https://api.example.com:6443","certificate-authority-data":"` +
			data + `"}}],"users":[],"contexts":[],"current-context":""}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseKubeconfig([]byte(document))
			if err != nil || !got.Equal(want) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		})
	}
}

// The smallest changes that are refused.
func TestParseKubeconfigRefuses(t *testing.T) {
	ca := newTestCA(t, "one")
	threes := ca.pem() // of a length without padding in base64
	for len(threes)%3 != 0 {
		threes = append(threes, '\n')
	}
	good := kubeadmKubeconfig("https://api.example.com:6443", threes)
	member := func(line string) string { return strings.Replace(good, "    server:", "    "+line+"\n    server:", 1) }
	top := func(line string) string { return good + line + "\n" }
	user := func(line string) string {
		return strings.Replace(good, "users: null", "users:\n- name: u\n  user:\n    "+line, 1)
	}
	server := func(s string) string { return strings.Replace(good, "https://api.example.com:6443", s, 1) }
	named := strings.Replace(good, `name: ""`, "name: c", 1)
	context := func(cluster, current string) string {
		return strings.NewReplacer("contexts: null", "contexts:\n- name: x\n  context:\n    cluster: "+cluster, `current-context: ""`, "current-context: "+current).Replace(named)
	}
	second := strings.Replace(good, "contexts: null", "- cluster:\n    server: https://b\n  name: b\ncontexts: null", 1)
	for name, test := range map[string]struct {
		document string
		want     Check
	}{
		"nothing":          {"", checkKubeconfig},
		"null":             {"null", checkKubeconfig},
		"a list":           {"[]", checkKubeconfig},
		"a text":           {"kubeconfig", checkKubeconfig},
		"an empty object":  {"{}", checkKubeconfig},
		"no YAML":          {"a: [", checkKubeconfig},
		"too large":        {good + strings.Repeat("#", maxKubeconfigSize), checkKubeconfig},
		"one too large":    {good + strings.Repeat("#", maxKubeconfigSize-len(good)+1), checkKubeconfig},
		"no UTF-8":         {top("# \xff"), checkKubeconfig},
		"byte order mark":  {"\ufeff" + good, checkKubeconfig},
		"UTF-16":           {"\xff\xfea\x00", checkKubeconfig},
		"NUL":              {top("# \x00"), checkKubeconfig},
		"second document":  {good + "---\n" + good, checkKubeconfig},
		"empty second":     {good + "---\n", checkKubeconfig},
		"anchor":           {strings.Replace(good, "contexts: null", "contexts: &a null", 1), checkKubeconfig},
		"alias":            {strings.NewReplacer("contexts: null", "contexts: &a []", "users: null", "users: *a").Replace(good), checkKubeconfig},
		"merge key":        {top("<<: {}"), checkKubeconfig},
		"tag":              {strings.Replace(good, "kind: Config", "kind: !!str Config", 1), checkKubeconfig},
		"own tag":          {strings.Replace(good, "kind: Config", "kind: !x Config", 1), checkKubeconfig},
		"duplicate":        {top("kind: Config"), checkKubeconfig},
		"duplicate server": {member("server: https://a"), checkKubeconfig},
		"twice a cluster":  {strings.Replace(good, "  name: \"\"\n", "  name: \"\"\n  cluster: {server: \"https://a\"}\n", 1), checkKubeconfig},
		"twice in context": {strings.Replace(context("c", "x"), "    cluster: c\n", "    cluster: d\n    cluster: c\n", 1), checkKubeconfig},
		"twice a name":     {strings.Replace(good, "users: null", "users:\n- name: u\n  name: v", 1), checkKubeconfig},
		"twice, quoted":    {top("\"kind\": Config"), checkKubeconfig},
		"number as key":    {top("1: null"), checkKubeconfig},
		"list as key":      {top("? [kind]\n: null"), checkKubeconfig},
		"nothing as key":   {top("? \n: null"), checkKubeconfig},
		"merge as value":   {strings.Replace(good, `name: ""`, "name: <<", 1), checkKubeconfig},
		"deep":             {top("preferences: " + strings.Repeat("[", 20) + strings.Repeat("]", 20)), checkKubeconfig},
		"very deep":        {top("extensions: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), checkKubeconfig},
		"no kind":          {strings.Replace(good, "kind: Config\n", "", 1), checkKubeconfig},
		"another kind":     {strings.Replace(good, "kind: Config", "kind: Secret", 1), checkKubeconfig},
		"no version":       {strings.Replace(good, "apiVersion: v1\n", "", 1), checkKubeconfig},
		"another version":  {strings.Replace(good, "apiVersion: v1", "apiVersion: v2", 1), checkKubeconfig},
		"version 1":        {strings.Replace(good, "apiVersion: v1", "apiVersion: 1", 1), checkKubeconfig},
		"unknown member":   {top("token: abc"), checkKubeconfig},
		"unknown in case":  {top("Users: [a]"), checkKubeconfig},
		"preferences":      {top("preferences: {colors: true}"), checkKubeconfig},
		"extensions":       {top("extensions: [{name: a}]"), checkKubeconfig},
		"clusters object":  {"apiVersion: v1\nkind: Config\nclusters: {}\n", checkKubeconfig},
		"no clusters":      {"apiVersion: v1\nkind: Config\nclusters: []\n", checkCluster},
		"clusters null":    {"apiVersion: v1\nkind: Config\nclusters: null\n", checkCluster},
		"cluster null":     {"apiVersion: v1\nkind: Config\nclusters: [{name: \"\", cluster: null}]\n", checkKubeconfig},
		"no cluster":       {"apiVersion: v1\nkind: Config\nclusters: [{name: \"\"}]\n", checkCluster},
		"two clusters":     {second, checkCluster},
		"named alone":      {named, checkCluster},
		"no such context":  {context("c", "z"), checkCluster},
		"other context":    {context("d", "x"), checkCluster},
		"two contexts":     {strings.Replace(context("c", "x"), "contexts:\n", "contexts:\n- name: x\n  context: {cluster: c}\n", 1), checkCluster},
		"context member":   {strings.Replace(context("c", "x"), "cluster: c\n", "cluster: c\n    extensions: [{name: a}]\n", 1), checkKubeconfig},
		"cluster member":   {member("disable-compression: true"), checkKubeconfig},
		"Server":           {member("Server: https://a"), checkKubeconfig},
		"insecure":         {member("insecure-skip-tls-verify: true"), checkInsecureSkipTLSVerify},
		"insecure text":    {member(`insecure-skip-tls-verify: "false"`), checkInsecureSkipTLSVerify},
		"insecure nothing": {member(`insecure-skip-tls-verify: ""`), checkInsecureSkipTLSVerify},
		"insecure list":    {member("insecure-skip-tls-verify: []"), checkInsecureSkipTLSVerify},
		"insecure no":      {member("insecure-skip-tls-verify: no"), checkKubeconfig},
		"proxy false":      {member("proxy-url: false"), checkProxy},
		"server name {}":   {member("tls-server-name: {}"), checkTLSServerName},
		"CA file []":       {member("certificate-authority: []"), checkCAFile},
		"compression text": {member(`disable-compression: ""`), checkKubeconfig},
		"extension object": {member("extensions: {}"), checkKubeconfig},
		"SERVER nothing":   {member(`SERVER: ""`), checkKubeconfig},
		"unknown nothing":  {member("token: null"), checkKubeconfig},
		"unknown at top":   {top("token: null"), checkKubeconfig},
		"next to cluster":  {strings.Replace(good, `  name: ""`, "  name: \"\"\n  token: null", 1), checkKubeconfig},
		"next to context":  {strings.Replace(context("c", "x"), "- name: x\n", "- name: x\n  token: null\n", 1), checkKubeconfig},
		"in context":       {strings.Replace(context("c", "x"), "    cluster: c\n", "    cluster: c\n    token: null\n", 1), checkKubeconfig},
		"preferences text": {top(`preferences: ""`), checkKubeconfig},
		"extensions {}":    {top("extensions: {}"), checkKubeconfig},
		"name yes":         {strings.NewReplacer(`name: ""`, "name: yes", "cluster: c", "cluster: yes").Replace(context("c", "x")), checkKubeconfig},
		"name Off":         {strings.Replace(good, `name: ""`, "name: Off", 1), checkKubeconfig},
		"name 1:20":        {strings.Replace(good, `name: ""`, "name: 1:20", 1), checkKubeconfig},
		"name -1:20:59.5":  {strings.Replace(good, `name: ""`, "name: -1:20:59.5", 1), checkKubeconfig},
		"a member yes":     {top("yes: null"), checkKubeconfig},
		"namespace n":      {strings.Replace(context("c", "x"), "    cluster: c\n", "    cluster: c\n    namespace: n\n", 1), checkKubeconfig},
		"user nothing":     {strings.Replace(good, "users: null", "users:\n- name: u\n  user: \"\"", 1), checkCredentials},
		"user a list":      {strings.Replace(good, "users: null", "users:\n- name: u\n  user: []", 1), checkCredentials},
		"proxy":            {member("proxy-url: http://proxy"), checkProxy},
		"TLS server name":  {member("tls-server-name: kubernetes"), checkTLSServerName},
		"CA file":          {member("certificate-authority: /etc/ca.crt"), checkCAFile},
		"token":            {user("token: abc"), checkCredentials},
		"token file":       {user("tokenFile: /a"), checkCredentials},
		"password":         {user("password: abc"), checkCredentials},
		"user name":        {user("username: abc"), checkCredentials},
		"client cert":      {user("client-certificate-data: abc"), checkCredentials},
		"client key":       {user("client-key: /a"), checkCredentials},
		"exec":             {user("exec: {command: /bin/sh}"), checkCredentials},
		"auth provider":    {user("auth-provider: {name: gcp}"), checkCredentials},
		"impersonation":    {user("as: root"), checkCredentials},
		"groups":           {user("as-groups: [system:masters]"), checkCredentials},
		"unknown user":     {user("x: null"), checkCredentials},
		"next to user":     {strings.Replace(good, "users: null", "users:\n- name: u\n  token: abc", 1), checkCredentials},
		"user is text":     {strings.Replace(good, "users: null", "users:\n- name: u\n  user: abc", 1), checkCredentials},
		"http":             {server("http://api.example.com:6443"), checkServerScheme},
		"no scheme":        {server("api.example.com:6443"), checkServerScheme},
		"user in URL":      {server("https://a:b@api.example.com:6443"), checkCredentials},
		"no server":        {strings.Replace(good, "    server: https://api.example.com:6443\n", "", 1), checkServer},
		"server null":      {server("null"), checkKubeconfig},
		"server empty":     {server(`""`), checkServer},
		"CA data empty":    {strings.Replace(good, base64.StdEncoding.EncodeToString(threes), `""`, 1), checkCA},
		"CA data null":     {strings.Replace(good, base64.StdEncoding.EncodeToString(threes), "null", 1), checkKubeconfig},
		"CA data no base":  {strings.Replace(good, base64.StdEncoding.EncodeToString(threes), "abc", 1), checkCA},
		"CA data URL base": {strings.Replace(good, base64.StdEncoding.EncodeToString(threes), "_-_-", 1), checkCA},
		"CA data and more": {strings.Replace(good, base64.StdEncoding.EncodeToString(threes), base64.StdEncoding.EncodeToString(threes)+"!", 1), checkCA},
		"CA data in lines": {strings.Replace(good, base64.StdEncoding.EncodeToString(threes), "|-\n      "+base64.StdEncoding.EncodeToString(threes)[:40]+"\n      "+base64.StdEncoding.EncodeToString(threes)[40:], 1), checkCA},
	} {
		t.Run(name, func(t *testing.T) {
			if test.document == good {
				t.Fatal("the document was not changed")
			}
			got, err := ParseKubeconfig([]byte(test.document))
			if !errors.Is(err, test.want) || got != nil {
				t.Errorf("%+v, %v, want %v", got, err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), "abc") && test.want == checkCredentials || len(err.Error()) > 1000) {
				t.Errorf("the error repeats a credential or is too long: %v", err)
			}
		})
	}
}

// CAs that are no base64 in one line are refused by member, place and rule.
func TestKubeconfigSaysWhyCAs(t *testing.T) {
	good := kubeadmKubeconfig("https://a", newTestCA(t, "one").pem())
	const member = "certificate-authority-data: "
	for name, changed := range map[string]string{
		"in lines": strings.Replace(good, member, member+"|-\n      AAAA\n      ", 1), "no base64": strings.Replace(good, member, member+"_", 1),
	} {
		_, err := ParseKubeconfig([]byte(changed))
		if want := "line 4, column 33: certificate-authority-data that is not base64 in one line"; !errors.Is(err, checkCA) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// A password may stand anywhere in a malformed document: no error
// repeats a word of it.
func TestErrorsOfDocumentsRepeatNothing(t *testing.T) {
	const secret = "hunter2-S3cr3t"
	for name, text := range map[string]string{
		"alias":               "password: *" + secret,
		"alias in flow":       "{token: *" + secret + "}",
		"anchor":              "password: &" + secret + " x",
		"tag":                 "password: !" + secret + " x",
		"tag handle":          "password: !" + secret + "!x y",
		"directive":           "%" + secret,
		"reserved":            "password: @" + secret,
		"percent":             "password: %" + secret,
		"escape":              "password: \"" + secret + "\\q\"",
		"open quote":          "password: \"" + secret,
		"key twice":           secret + ": 1\n    " + secret + ": 2",
		"key alone":           secret,
		"member":              secret + ": x",
		"tab":                 "password:\t" + secret + ": x",
		"nested":              "password: " + secret + ": x",
		"bad character":       "password: " + secret + "\x01",
		"key that is no text": "[" + secret + "]: x",
	} {
		t.Run(name, func(t *testing.T) {
			for _, document := range []string{
				text + "\n",
				"apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    " + text + "\n",
				"apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user:\n    " + text + "\n",
			} {
				_, err := ParseKubeconfig([]byte(document))
				if !errors.Is(err, checkKubeconfig) && !errors.Is(err, checkCredentials) {
					t.Errorf("%q: %v", document, err)
				}
				if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "hunter2") || strings.Contains(text, "S3cr3t") {
					t.Errorf("%q: %s", document, text)
				}
			}
		})
	}
}

// Documents that are as bad as they can be for a YAML reader are refused, and need no
// more memory than some multiple of their size.
func TestParseKubeconfigHostile(t *testing.T) {
	for name, unit := range map[string]string{
		"flow lists": "[", "flow objects": "{", "flow pairs": "[a,", "block lists": "- ", "keys": "? ", "colons": "a: ", "quotes": `"`, "anchors": "&a ",
		"aliases": "*a ", "tags": "!!", "documents": "---\n", "comments": "#\n", "items": "- a\n", "elements": "a,", "escapes": `"\u0041`, "percent": "%", "tabs": "\t",
	} {
		t.Run(name, func(t *testing.T) {
			for _, prefix := range []string{"", "[", "a: "} {
				document := prefix + strings.Repeat(unit, (maxKubeconfigSize-len(prefix))/len(unit))
				if got, err := ParseKubeconfig([]byte(document)); !errors.Is(err, checkKubeconfig) {
					t.Errorf("%s after %q: %+v, %v", name, prefix, got, err)
				}
			}
			if _, err := ParseKubeconfig([]byte(strings.Repeat(unit, 1<<20))); !errors.Is(err, checkKubeconfig) {
				t.Errorf("%s: 1 MiB: %v", name, err)
			}
		})
	}
}

// A lenient reader reads an accepted document in the same way.
func FuzzParseKubeconfig(f *testing.F) {
	ca := newTestCA(f, "one")
	good := kubeadmKubeconfig("https://a:1", ca.pem())
	for _, s := range []string{good, strings.Replace(good, "users: null", "users: [{name: a, user: {}}]", 1), "{}", "a: &a b", good + "---\n",
		"apiVersion: v1\nkind: Config\nclusters: [{cluster: {server: https://a}}]", "%YAML 1.1\n---\n" + good} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseKubeconfig(data)
		if err != nil {
			var own *Error
			if !errors.As(err, &own) || c != nil {
				t.Fatalf("%v, %v", c, err)
			}
			return
		}
		var loose struct {
			Clusters []struct {
				Cluster struct {
					Server string
					Data   string `yaml:"certificate-authority-data"`
				}
			}
			Users []struct{ User map[string]any }
		}
		if err := yaml.Unmarshal(data, &loose); err != nil {
			t.Fatal(err)
		}
		if len(loose.Clusters) != 1 || loose.Clusters[0].Cluster.Server != c.Server || (loose.Clusters[0].Cluster.Data == "") != c.SystemRoots {
			t.Fatalf("%+v, loosely %+v", c, loose)
		}
		for _, u := range loose.Users {
			if len(u.User) != 0 {
				t.Fatalf("user %+v", u)
			}
		}
		written, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseKubeconfig(written)
		if err != nil || !again.Equal(c) {
			t.Fatalf("%+v is written as %s, %v", c, written, err)
		}
	})
}

// The yaml package and encoding/json agree about a discovery document in JSON.
func TestParseKubeconfigJSONAgrees(t *testing.T) {
	ca := newTestCA(t, "one")
	document := map[string]any{"apiVersion": "v1", "kind": "Config", "clusters": []any{map[string]any{"name": "", "cluster": map[string]any{
		"server": "https://a:1", "certificate-authority-data": ca.pem()}}}}
	data, err := json.MarshalIndent(document, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ParseKubeconfig(data); err != nil || !c.Equal(info("https://a:1", ca)) {
		t.Errorf("%+v, %v", c, err)
	}
}
