// Caller calls a service for a pod of its node: it asks for a token of the pod as the node, and sends it
// over a connection with the node's certificate. It stands for a CSI driver or an agent that runs as root
// next to the kubelet.
package main

import (
	"context"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/kube/nodetls"
)

func main() {
	certificate := flag.String("certificate", "/var/lib/kubelet-authenticator/client.pem", "the node's certificate, as kubelet-authenticator keeps it")
	server := flag.String("server", "https://127.0.0.1:6443", "the API server")
	serverCA := flag.String("server-ca", "/etc/kubernetes/pki/ca.crt", "its CA")
	service := flag.String("service", "", "the service's URL")
	serviceCA := flag.String("service-ca", "", "its CA")
	audience := flag.String("audience", "", "the service's audience, which a projected volume of the pod has")
	pod := flag.String("pod", "", "the pod: namespace/name")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	node := must(nodetls.Open(*certificate, nodetls.Options{Log: slog.Default()}))
	api := must(kubernetes.NewForConfig(&rest.Config{Host: *server, Transport: asNode(node, must(os.ReadFile(*serverCA)))}))
	namespace, name, _ := strings.Cut(*pod, "/")
	token := must(podToken(ctx, api, namespace, name, *audience))
	client := &http.Client{Transport: asNode(node, must(os.ReadFile(*serviceCA)))}
	fmt.Print(must(call(ctx, client, *service, token)))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// asNode connects with the node's certificate to a server of a CA.
func asNode(node *nodetls.Certificate, ca []byte) http.RoundTripper {
	config := node.TLSConfig()
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AppendCertsFromPEM(ca)
	return node.Transport(&http.Transport{TLSClientConfig: config, MaxResponseHeaderBytes: 64 << 10})
}

// podToken asks for a token of a pod as the node. The API server issues it if the pod is bound to this
// node, and has a projected volume with the audience.
func podToken(ctx context.Context, node kubernetes.Interface, namespace, name, audience string) (string, error) {
	pod, err := node.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:         []string{audience},
		ExpirationSeconds: new(int64(600)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	issued, err := node.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return issued.Status.Token, nil
}

// call calls the service, again after each 503: then it could not decide. It follows no redirect: net/http
// would send the token to any port of the same host, also without TLS.
func call(ctx context.Context, client *http.Client, url, token string) (string, error) {
	if !strings.HasPrefix(url, "https://") {
		return "", fmt.Errorf("%s: the token is sent over https:// alone", url)
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := own.Do(request)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		_ = response.Body.Close()
		switch {
		case err != nil:
			return "", err
		case response.StatusCode == http.StatusOK:
			return string(body), nil
		case response.StatusCode != http.StatusServiceUnavailable:
			return "", fmt.Errorf("%s: %s: %s", url, response.Status, body)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %s: %s: %w", url, response.Status, body, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
