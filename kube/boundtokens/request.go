package boundtokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodeattest/nodeattest/refusal"
)

// maxAnswer bounds an answer, in bytes. etcd takes 1.5 MiB for an object, by default.
const maxAnswer = 4 << 20

// The Accept headers: every API server gives JSON, and of some objects the metadata is enough.
const (
	acceptWhole    = "application/json"
	acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

var (
	errRedirect = errors.New("a redirect, which no API server gives")
	errLarge    = fmt.Errorf("an answer of more than %d bytes", maxAnswer)
)

// A target is an object in the paths of an API server. Without a name it is the resource, to which
// objects are posted.
type target struct {
	of              schema.GroupVersionResource
	namespace, name string

	secret string // is sent there; where an answer repeats it, it is left out
}

func (t target) String() string {
	return strings.TrimSpace(t.of.Resource + " " + refusal.Text(strings.TrimPrefix(t.namespace+"/"+t.name, "/")))
}

// segments is the target's path.
func (t target) segments() ([]string, error) {
	all := []string{"apis", t.of.Group, t.of.Version}
	if t.of.Group == "" {
		all = []string{"api", t.of.Version}
	}
	if t.namespace != "" {
		all = append(all, "namespaces", t.namespace)
	}
	all = append(all, t.of.Resource)
	if t.name != "" {
		all = append(all, t.name)
	}
	for _, segment := range all {
		if segment == "" || len(content.IsPathSegmentName(segment)) > 0 {
			return nil, fmt.Errorf("%s in the path of a request", refusal.Quote(segment))
		}
	}
	return all, nil
}

// errAbsent is the API server's answer for an object that does not exist.
var errAbsent = errors.New("the API server has no such object")

// get reads an object. Every error but errAbsent means that there was no answer.
func (c *Cluster) get(ctx context.Context, t target, accept string, into any) error {
	if err := c.ready(); err != nil {
		return err
	}
	if t.name == "" {
		return refusal.Retry(fmt.Errorf("boundtokens: %s without a name", t.of.Resource))
	}
	return c.do(ctx, http.MethodGet, t, accept, nil, into)
}

// do sends one request and decodes its answer.
func (c *Cluster) do(ctx context.Context, method string, t target, accept string, body []byte, into any) error {
	answer, err := c.send(ctx, method, t, accept, body)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	switch absent := apierrors.ReasonForError(err) == metav1.StatusReasonNotFound && !apierrors.IsUnexpectedServerError(err); {
	case err == nil:
		return nil
	case absent && method == http.MethodGet:
		return errAbsent
	}
	return refusal.Retry(fmt.Errorf("boundtokens: %s %s: %w", strings.ToLower(method), t, err))
}

// send returns the body of a good answer.
func (c *Cluster) send(ctx context.Context, method string, t target, accept string, body []byte) ([]byte, error) {
	segments, err := t.segments()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.server.JoinPath(segments...).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(r)
	switch {
	case errors.Is(err, errRedirect):
		return nil, errRedirect // without its URL
	case err != nil:
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxAnswer:
		return nil, errLarge
	}
	if t.secret != "" {
		answer = bytes.ReplaceAll(answer, []byte(t.secret), []byte("<token>"))
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated {
		return answer, nil
	}
	return nil, statusError(response.StatusCode, method, t, answer)
}

// statusError returns the API server's error, or that of a proxy or an API server that does not know
// the resource.
func statusError(code int, method string, t target, answer []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err == nil && status.Kind == "Status" && int(status.Code) == code {
		status.Message = refusal.Text(status.Message)
		return apierrors.FromObject(&status)
	}
	return apierrors.NewGenericServerResponse(code, method, t.of.GroupResource(), t.name, refusal.Text(string(answer)), 0, true)
}
