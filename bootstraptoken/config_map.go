package bootstraptoken

import (
	"bytes"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// MaxConfigMapSize is the size in bytes of the largest answer of an API server: a
// ConfigMap holds 1 MiB, and JSON escapes some of it.
const MaxConfigMapSize = 2 << 20

// CheckConfigMap: an answer is not the cluster-info ConfigMap in JSON.
const CheckConfigMap Check = "cluster-info-object"

// ParseConfigMap reads the cluster-info ConfigMap as the API server serves it in JSON and
// returns its data, nil where it has none. It must be a v1 ConfigMap with the name
// [ClusterInfoName] in the namespace [ClusterInfoNamespace], of at most
// [MaxConfigMapSize] bytes. Members that are not known are passed over: Kubernetes adds
// some. Those that come twice, or in two cases, are refused. YAML is not read. The error is
// [CheckConfigMap].
func ParseConfigMap(object []byte) (map[string]string, error) {
	if len(object) > MaxConfigMapSize {
		return nil, &Error{Check: CheckConfigMap, Got: strconv.Itoa(len(object)) + " bytes", Want: "at most " + strconv.Itoa(MaxConfigMapSize)}
	}
	var c configMap
	r := strictjson.NewReader(object)
	err := c.read(r)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, notJSON(object, err)
	}
	if c.apiVersion != "v1" || c.kind != "ConfigMap" {
		return nil, &Error{Check: CheckConfigMap, Got: refusal.Quote(c.apiVersion) + " " + refusal.Quote(c.kind), Want: `"v1" "ConfigMap"`}
	}
	if c.namespace != ClusterInfoNamespace || c.name != ClusterInfoName {
		return nil, &Error{Check: CheckConfigMap, Got: refusal.Quote(c.namespace) + " " + refusal.Quote(c.name),
			Want: strconv.Quote(ClusterInfoNamespace) + " " + strconv.Quote(ClusterInfoName)}
	}
	return c.data, nil
}

// notJSON says that a text is none, where it does not even begin as an object does.
func notJSON(object []byte, err error) error {
	if begin := bytes.TrimLeft(object, " \t\r\n"); len(begin) == 0 || begin[0] != '{' {
		return &Error{Check: CheckConfigMap, Got: "a text that is not JSON, as YAML is not", Want: "a ConfigMap in JSON, as kubectl get -o json prints it", Err: err}
	}
	return &Error{Check: CheckConfigMap, Err: err}
}

type configMap struct {
	apiVersion, kind, namespace, name string
	data                              map[string]string
}

func (c *configMap) read(r *strictjson.Reader) error {
	return r.Object(func(member []byte) (err error) {
		switch string(member) {
		case "apiVersion":
			c.apiVersion, err = r.String()
		case "kind":
			c.kind, err = r.String()
		case "metadata":
			err = c.readMetadata(r)
		case "data":
			err = c.readData(r)
		default:
			err = r.Skip()
		}
		return err
	})
}

func (c *configMap) readMetadata(r *strictjson.Reader) error {
	return r.Object(func(member []byte) (err error) {
		switch string(member) {
		case "name":
			c.name, err = r.String()
		case "namespace":
			c.namespace, err = r.String()
		default:
			err = r.Skip()
		}
		return err
	})
}

func (c *configMap) readData(r *strictjson.Reader) error {
	if r.Kind() == strictjson.NullKind {
		return r.Null()
	}
	c.data = map[string]string{}
	return r.Object(func(member []byte) error {
		key := string(member)
		value, err := r.String()
		c.data[key] = value
		return err
	})
}
