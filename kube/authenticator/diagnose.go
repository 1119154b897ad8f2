package authenticator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/kubelet"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkDiagnosis is the check of the faults that [Diagnose] finds by itself.
const checkDiagnosis refusal.Check = "diagnosis"

// diagnosisLimit bounds the look at the API server.
const diagnosisLimit = 15 * time.Second

// Diagnosis is one result of [Diagnose].
type Diagnosis struct {
	// Subject is clock, API server, token, policy or kubelet.
	Subject string
	// Text is the result, or with Unknown the reason why it was not checked. It may contain text of the API
	// server, which refusal.Escape makes safe to print.
	Text string
	// Unknown says that the subject could not be checked, because another is broken.
	Unknown bool
	// Broken, if not nil, is the fault, with the remedy and its actor.
	Broken error
}

// Diagnose checks the clock, the API server, the credential for it, whether the cluster lets that credential
// file certificate requests, and the kubelet's configuration. It neither opens the machine's evidence nor
// writes a file, and files no request. The first contact with the API server is anonymous, and a credential
// is sent only to a server that the CAs of API verify.
func Diagnose(ctx context.Context, config Config) []Diagnosis {
	if config.Now == nil {
		config.Now = time.Now
	}
	d := &diagnosis{Config: config, now: config.Now()}
	d.cluster(ctx)
	places := kubelet.Places(config.Kubelet)
	places.Parent = false
	rules := kubelet.Rules{Places: places, Serving: config.Serving != nil, NodeName: config.NodeName}
	d.add("kubelet", "its configuration requests no certificate without evidence", rules.CheckRunning())
	return d.all
}

// diagnosis is one run.
type diagnosis struct {
	Config
	now time.Time
	all []Diagnosis
}

func (d *diagnosis) add(subject, text string, broken error) {
	if broken != nil {
		text = ""
	}
	d.all = append(d.all, Diagnosis{Subject: subject, Text: text, Broken: broken})
}

func (d *diagnosis) unknown(why string, subjects ...string) {
	for _, subject := range subjects {
		d.all = append(d.all, Diagnosis{Subject: subject, Text: why, Unknown: true})
	}
}

// cluster checks what takes an API server.
func (d *diagnosis) cluster(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, diagnosisLimit)
	defer cancel()
	if d.API == nil {
		d.API = func() (*rest.Config, error) { return nil, refusal.Config("API", "", "how the API server is reached") }
	}
	anonymous, configured, err := (&Authenticator{config: d.Config}).connection()
	if err != nil {
		d.unknown("not compared: no API server answered", "clock")
		d.add("API server", "", err)
		d.unknown("not asked: see API server", "token", "policy")
		return
	}
	skew, err := d.server(ctx, anonymous)
	switch {
	case err != nil:
		d.unknown("not compared: no API server of the cluster answered", "clock")
		d.add("API server", "", err)
	case skew.Abs() > nodecert.Skew:
		where := map[bool]string{true: "ahead of", false: "behind"}[skew > 0]
		d.add("clock", "", checkDiagnosis.Refuse(fmt.Sprintf("%s, which is %s %s the API server's clock", d.now.UTC().Format(time.RFC3339), ofDays(skew.Abs()), where),
			"at most "+nodecert.Skew.String()+": the machine's administrator sets the clock, and has a time service keep it"))
		d.add("API server", anonymous.Host+" has a certificate that a CA of the kubeconfig verifies, at the server's own time", nil)
	default:
		d.add("clock", "within "+nodecert.Skew.String()+" of the API server's", nil)
		d.add("API server", anonymous.Host+" has a certificate that a CA of the kubeconfig verifies", nil)
		d.credential(ctx, anonymous, configured)
		return
	}
	d.unknown("not asked: see clock and API server", "token", "policy")
}

// ofDays writes a time, in days if it is long.
func ofDays(d time.Duration) string {
	if days := d.Hours() / 24; days >= 2 {
		return fmt.Sprintf("%.0f days", days)
	}
	return d.Round(time.Second).String()
}

// server asks the API server for its version, anonymously and by any certificate, and then verifies that
// certificate: at the server's own time, which tells a wrong clock of this machine from a wrong CA. It
// returns how far this machine's clock is ahead.
func (d *diagnosis) server(ctx context.Context, anonymous *rest.Config) (skew time.Duration, err error) {
	target, err := url.Parse(anonymous.Host)
	if err != nil {
		return 0, refusal.Config("API", "a server that is not a URL", "https://host[:port][/path]")
	}
	dial := anonymous.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t := &http.Transport{TLSHandshakeTimeout: diagnosisLimit, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, DialContext: recovered.Dial(dial),
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: anonymous.ServerName}, //nolint:gosec // verified below, and sent no credential
		Proxy:           http.ProxyFromEnvironment}
	if anonymous.Proxy != nil {
		t.Proxy = anonymous.Proxy
	}
	defer t.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.JoinPath("version").String(), nil)
	if err != nil {
		return 0, err
	}
	answer, err := t.RoundTrip(request)
	if err != nil {
		return 0, &refusal.Error{Check: checkDiagnosis, Got: "no answer of " + refusal.Text(anonymous.Host), Want: "the cluster's API server: check its address in the kubeconfig, the network and the server", Err: apiclient.WithoutPasswords(err)}
	}
	_ = answer.Body.Close()
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil || answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return 0, checkDiagnosis.Refuse("an answer of "+refusal.Text(anonymous.Host)+" without a date", "the cluster's API server")
	}
	return d.now.Sub(date), verifyServer(anonymous, target.Hostname(), answer.TLS.PeerCertificates, date)
}

// verifyServer verifies the API server's certificate at a time.
func verifyServer(anonymous *rest.Config, name string, certificates []*x509.Certificate, at time.Time) error {
	cas, err := apiclient.CAs(anonymous)
	if err != nil {
		return err
	}
	if anonymous.ServerName != "" {
		name = anonymous.ServerName
	}
	opts := x509.VerifyOptions{DNSName: name, CurrentTime: at, Intermediates: x509.NewCertPool()}
	if len(cas) != 0 {
		opts.Roots = x509.NewCertPool()
	}
	for _, ca := range cas {
		opts.Roots.AddCert(ca)
	}
	for _, c := range certificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := certificates[0].Verify(opts); err != nil {
		return &refusal.Error{Check: apiclient.CheckServerCertificate, Got: "a certificate of " + refusal.Text(anonymous.Host) + " from " + refusal.Text(certificates[0].Issuer.String()),
			Want: "one from a CA of the kubeconfig: the machine's administrator checks the server's address, or gets the cluster's CAs with kubelet-authenticator discover --replace", Err: err}
	}
	return nil
}

// stored returns the client certificate if it can be used. A folder that does not exist is not made.
func (d *diagnosis) stored() (*certstore.Pair, error) {
	for _, dir := range []string{d.KeyDir, d.Dir} {
		if _, err := os.Stat(dir); dir == "" || err != nil {
			continue
		}
		s, err := certstore.Open(dir)
		if err != nil {
			return nil, err
		}
		if p, err := s.ReadPair(ClientFile); err == nil && p.Usable(d.now) && !p.Sealed {
			return p, nil
		}
	}
	return nil, nil
}

// credential checks the client certificate or, without a usable one, the bootstrap token.
func (d *diagnosis) credential(ctx context.Context, anonymous, configured *rest.Config) {
	ask := (&Authenticator{config: d.Config}).freshToken()
	use, what := configured, "the bootstrap token"
	p, err := d.stored()
	switch {
	case err != nil:
		d.add("token", "", err)
	case p != nil:
		use, what = rest.CopyConfig(anonymous), "the client certificate until "+p.Leaf.NotAfter.UTC().Format(time.RFC3339)
		use.CertData, use.KeyData = p.Chain, p.Key
	case !hasCredential(configured):
		d.add("token", "", checkDiagnosis.Refuse("no client certificate and no bootstrap token", ask))
		err = errors.New("no credential")
	}
	if err != nil {
		d.unknown("not asked: see token", "policy")
		return
	}
	who, may, err := review(ctx, use)
	switch {
	case apierrors.IsUnauthorized(err):
		d.add("token", "", &refusal.Error{Check: checkDiagnosis, Got: what + ", which the API server does not accept", Want: ask, Err: err})
	case who == "":
		d.add("token", "", err)
	default:
		d.add("token", what+" is user "+who, nil)
		if err == nil && !may {
			err = checkDiagnosis.Refuse("user "+refusal.Text(who)+", who may not create certificatesigningrequests",
				"a user who may: the operator applies kube/deploy, which binds the role of bootstrap tokens and of nodes")
		}
		d.add("policy", who+" may file certificate requests", err)
		return
	}
	d.unknown("not asked: see token", "policy")
}

// review returns the user of a credential, and whether it may file certificate requests. who is "" if that
// is not known.
func review(ctx context.Context, config *rest.Config) (who string, may bool, err error) {
	c, err := apiclient.Connect(config, nil)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	user, err := c.WhoAmI(ctx)
	if err != nil {
		return "", false, err
	}
	may, err = c.MayFile(ctx)
	return user.Username, may, err
}
