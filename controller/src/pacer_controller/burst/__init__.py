"""Burstiness of packets (Takano et al.): from a switch that runs gtrcnet, or from capture files."""
