"""saved_model"""
