package requests

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// resource is the resource of certificate requests.
	resource = "certificatesigningrequests"
	// pageSize is for how many requests the API server is asked at a time.
	pageSize = 100
	// maxMetadata is the size of the labels, annotations, owners and finalizers that are kept.
	maxMetadata = 16 << 10
)

// Client makes the client of a cluster for [Each].
func Client(config *rest.Config, http *http.Client, scheme *runtime.Scheme) (rest.Interface, error) {
	return apiutil.RESTClientForGVK(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), false, false, config, serializer.NewCodecFactory(scheme), http)
}

// Each calls a function for each request that a selector finds, and returns the resource
// version of the list's beginning. It holds one request at a time, however large the list is: it
// asks for pages, and reads them as streams. If the list expires, it goes on with the present
// rest; a watch from the version reports the changes before that.
func Each(ctx context.Context, api rest.Interface, selector fields.Selector, each func(o *certificatesv1.CertificateSigningRequest)) (version string, err error) {
	options := metav1.ListOptions{FieldSelector: selector.String(), Limit: pageSize}
	for {
		page, err := onePage(ctx, api, &options, each)
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok && options.Continue != "" && apierrors.IsResourceExpired(err) && status.Status().Continue != "" {
			options.Continue = status.Status().Continue
			continue
		}
		if err != nil {
			return "", fmt.Errorf("a list of requests: %w", err)
		}
		version = cmp.Or(version, page.ResourceVersion)
		if page.Continue == "" {
			return version, nil
		}
		options.Continue = page.Continue
	}
}

func onePage(ctx context.Context, api rest.Interface, options *metav1.ListOptions, each func(o *certificatesv1.CertificateSigningRequest)) (metav1.ListMeta, error) {
	body, err := api.Get().Resource(resource).VersionedParams(options, scheme.ParameterCodec).
		SetHeader("Accept", "application/json").SetHeader("Accept-Encoding", "identity").Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer body.Close()
	return decode(body, each)
}

// decode reads a list in JSON.
func decode(from io.Reader, each func(o *certificatesv1.CertificateSigningRequest)) (page metav1.ListMeta, err error) {
	d := json.NewDecoder(from)
	switch first, err := d.Token(); {
	case err != nil:
		return page, err
	case first != json.Delim('{'):
		return page, fmt.Errorf("got %v, want an object", first)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return page, err
		}
		switch name {
		case "metadata":
			err = d.Decode(&page)
		case "items":
			err = decodeItems(d, each)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return page, err
		}
	}
	_, err = d.Token()
	return page, err
}

func decodeItems(d *json.Decoder, each func(o *certificatesv1.CertificateSigningRequest)) error {
	switch first, err := d.Token(); {
	case err != nil:
		return err
	case first == nil: // null
		return nil
	case first != json.Delim('['):
		return fmt.Errorf("items: got %v, want a list", first)
	}
	for d.More() {
		o := new(certificatesv1.CertificateSigningRequest)
		if err := d.Decode(o); err != nil {
			return err
		}
		each(lean(o))
	}
	_, err := d.Token()
	return err
}

// BreakGlass is the annotation in which an administrator says why a request of a node was
// approved without attestation. The admission policies let no other account approve, and no node
// write it.
const BreakGlass = "nodeattest.github.io/break-glass"

// lean drops all that no decision reads: managed fields, and labels, annotations but
// BreakGlass, owners and finalizers if there is much of them. A decision is written without
// those, and so takes them out of the object.
func lean(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	o.TypeMeta, o.ManagedFields = metav1.TypeMeta{}, nil
	if o.ObjectMeta.Size() > maxMetadata {
		why := o.Annotations[BreakGlass]
		o.Labels, o.Annotations, o.OwnerReferences, o.Finalizers = nil, nil, nil, nil
		if why != "" {
			o.Annotations = map[string]string{BreakGlass: why[:min(len(why), maxMetadata)]}
		}
	}
	return o
}
