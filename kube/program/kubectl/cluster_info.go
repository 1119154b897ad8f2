package kubectl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/internal/clusterinfo"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// statusNotDecided is the exit status of cluster-info publish if a server could not be reached.
const statusNotDecided = exitStatus(3)

// maxTokenFile is the size of a file with a token: 23 bytes, and white space.
const maxTokenFile = 256

// published reads the discovery document of the cluster.
func (p *plugin) published(ctx context.Context) (*corev1.ConfigMap, *bootstraptoken.ClusterInfo, error) {
	object := new(corev1.ConfigMap)
	err := p.client.Get(ctx, clusterinfo.Key(), object)
	if apierrors.IsNotFound(err) {
		return nil, nil, errors.New("the cluster publishes no discovery document: there is no ConfigMap kube-public/cluster-info; see kubectl nodeattest cluster-info publish")
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := bootstraptoken.ParseKubeconfig([]byte(object.Data[bootstraptoken.KubeconfigKey]))
	if err != nil {
		return nil, nil, fmt.Errorf("ConfigMap kube-public/cluster-info, which nodes would refuse: %w", err)
	}
	return object, info, nil
}

// showClusterInfo shows the discovery document, and what anonymous clients of its server can read.
func (p *plugin) showClusterInfo(ctx context.Context, _ string) error {
	object, info, err := p.published(ctx)
	if err != nil {
		return err
	}
	by := "another program, such as kubeadm: publish leaves it alone without --replace"
	if clusterinfo.Published(object) {
		by = "nodeattest"
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "server\t%s\npublished by\t%s\n", refusal.Text(info.Server), by)
	p.writeCAs(w, info)
	var ids []string
	for _, key := range slices.Sorted(maps.Keys(object.Data)) {
		if id, ok := strings.CutPrefix(key, bootstraptoken.SignatureKeyPrefix); ok {
			ids = append(ids, refusal.Text(id))
		}
	}
	fmt.Fprintf(w, "signed by tokens\t%s\n", cmp.Or(strings.Join(ids, ", "), "none yet"))
	writeAnonymous(ctx, w, info)
	return w.Flush()
}

// writeCAs writes a line for each CA: its pin and its end.
func (p *plugin) writeCAs(w io.Writer, info *bootstraptoken.ClusterInfo) {
	if info.SystemRoots {
		fmt.Fprint(w, "CA\tnone: the roots that each node's system trusts\n")
	}
	for i, pin := range info.Pins() {
		ca, ends := info.CAs[i], "ends"
		if p.now().After(ca.NotAfter) {
			ends = "ended"
		}
		fmt.Fprintf(w, "CA\t%s, %s, %s %s\n", pin, refusal.Text(ca.Subject.String()), ends, ca.NotAfter.Format(time.RFC3339))
	}
}

// anonymousPaths are the paths that [plugin.showClusterInfo] asks for without a credential: the document,
// its neighbours, which need no anonymous reader, and the health checks.
var anonymousPaths = []struct{ path, name string }{
	{"/api/v1/namespaces/kube-public/configmaps/cluster-info", "cluster-info"},
	{"/api/v1/namespaces/kube-public/configmaps", "all of kube-public"},
	{"/version", "/version"},
	{"/livez", "/livez"},
	{"/readyz", "/readyz"},
	{"/healthz", "/healthz"},
}

// writeAnonymous writes a line for each path, with the server's answer to a request without a credential.
func writeAnonymous(ctx context.Context, w io.Writer, info *bootstraptoken.ClusterInfo) {
	roots, err := info.Roots()
	if err != nil {
		fmt.Fprintf(w, "anonymous\tnot asked: %s\n", refusal.Text(err.Error()))
		return
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, MaxResponseHeaderBytes: 64 << 10}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, at := range anonymousPaths {
		answer, err := anonymous(ctx, c, strings.TrimSuffix(info.Server, "/")+at.path)
		if err != nil {
			fmt.Fprintf(w, "anonymous\tnot known: %s\n", refusal.Text(err.Error()))
			return
		}
		fmt.Fprintf(w, "anonymous\t%s: %s\n", at.name, answer)
	}
}

// anonymous describes the answer of a server to a request without a credential.
func anonymous(ctx context.Context, c *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := c.Do(r)
	if err != nil {
		return "", err
	}
	_ = res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return "can read it", nil
	case http.StatusUnauthorized:
		return "401, no anonymous request is taken there", nil
	case http.StatusForbidden:
		return "403, no right", nil
	}
	return fmt.Sprintf("HTTP status %d", res.StatusCode), nil
}

// verifyClusterInfo checks the document's signature by the token in a file.
func (p *plugin) verifyClusterInfo(ctx context.Context, _ string) error {
	token, err := p.readToken()
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	object, _, err := p.published(ctx)
	if err != nil {
		return err
	}
	info, err := bootstraptoken.VerifyClusterInfo(object.Data, token)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "signed by token\t%s\nserver\t%s\n", token.ID(), refusal.Text(info.Server))
	p.writeCAs(w, info)
	return w.Flush()
}

// readToken reads the token of --token-file, where - is standard input.
func (p *plugin) readToken() (bootstraptoken.Token, error) {
	var text []byte
	var err error
	if p.tokenFile == "-" {
		text, err = io.ReadAll(io.LimitReader(p.in, maxTokenFile+1))
	} else {
		text, err = files.Read(p.tokenFile, maxTokenFile)
	}
	if err != nil {
		return bootstraptoken.Token{}, err
	}
	return bootstraptoken.Parse(strings.TrimSpace(string(text)))
}
