package doctest

import (
	"os"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// repository is the top of the repository, seen from here.
const repository = "../.."

func TestMain(m *testing.M) { os.Exit(testbed.MainWithWeir(m)) }
