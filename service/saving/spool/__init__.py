"""Results on local disk before they are promised: they survive `kill -9`."""
